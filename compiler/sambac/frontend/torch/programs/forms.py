"""Operators of a program without an ONNX form: the exporter names the first, here all are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.onnx._internal.exporter._decomp import (
    create_onnx_friendly_decomposition_table,
    get_onnx_implemented_overloads,
)
from torch.onnx._internal.exporter._registration import ONNXRegistry

from pef.wording import listed
from sambac.errors import CompileError
from sambac.graph.origins import last_line

Translations = Mapping[Callable[..., object], object]


def require_forms(
    name: str, program: ExportedProgram, translations: Translations, opset: int
) -> None:
    """Raise `CompileError` with the operators that nothing translates, if there are several.

    `name` is what messages call the program; `translations` are those beside the exporter's own
    for the operator set `opset`.
    """
    registry = ONNXRegistry.from_torchlib(opset_version=opset)
    known = {*translations, *get_onnx_implemented_overloads(registry)}
    try:
        simpler = program.run_decompositions(create_onnx_friendly_decomposition_table(known))
    except Exception:  # as code of PyTorch's may raise anything; the caller tells of the first one
        return
    missing: dict[str, str] = {}
    for node in _operators(simpler):
        if node.target not in known:
            place = last_line(node.meta.get("stack_trace") or "")
            text = str(node.target).removesuffix(".default")
            missing.setdefault(text, f"{text}{f' at {place}' if place else ''}")
    if len(missing) > 1:
        raise CompileError(
            f"{name} cannot be exported: these operators of it have no ONNX form; write it with "
            f"others: {listed([*missing.values()])}"
        )


def _operators(program: ExportedProgram) -> list[fx.Node]:
    return [
        node
        for module in program.graph_module.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and "_assert_" not in str(node.target)
    ]
