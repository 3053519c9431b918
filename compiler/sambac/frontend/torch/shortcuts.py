"""Ways round what the exporter does at length for nothing; while it runs, here, it takes them."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from onnxscript.rewriter import RewriteRule
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.onnx._internal.exporter import _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

from .guards import replaced

_VIEWS = frozenset(
    {
        torch.ops.aten.view.default,
        torch.ops.aten.reshape.default,
        torch.ops.aten._unsafe_view.default,
    }
)


@contextmanager
def decomposed_once() -> Iterator[None]:
    """Let programs alone in which every operator has a translation, and every size is a number.

    The exporter would record them once more, which takes as long as recording the module.
    """
    decompose = _fx_passes.decompose_with_registry

    def decomposed(program: ExportedProgram, registry: ONNXRegistry) -> ExportedProgram:
        if all(_is_ready(node, registry) for node in program.graph.nodes):
            return program
        return decompose(program, registry)

    with replaced(_fx_passes, decompose.__name__, decomposed):
        yield


def _is_ready(node: fx.Node, registry: ONNXRegistry) -> bool:
    if node.op == "call_function" and node.target is not operator.getitem:
        if not isinstance(node.target, OpOverload) or not registry.is_registered(node.target):
            return False
    elif node.op == "get_attr":
        return False
    return node.op == "output" or (
        _has_known_type(node.meta.get("val")) and not _is_empty_view(node)
    )


def _is_empty_view(node: fx.Node) -> bool:
    """Tell whether a node gives 0 as a size, which means something else in ONNX."""
    return node.target in _VIEWS and 0 in node.meta["val"].shape


def _has_known_type(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_has_known_type, value))
    if isinstance(value, torch.Tensor):
        return all(isinstance(size, int) for size in value.shape)
    return False


@contextmanager
def rules_where_they_begin() -> Iterator[None]:
    """Let rules of the optimizer be tried on operators of the type alone that they begin with.

    It tries every rule on every operator, and makes an explanation for each that does not match.
    """
    rewrite = RewriteRule.try_rewrite

    def tried(
        rule: RewriteRule, model: ir.Model, graph: ir.Graph, node: ir.Node, **others: Any
    ) -> object:
        begins = rule._target_pattern.output_nodes[0].op
        return rewrite(rule, model, graph, node, **others) if begins.matches(node.op_type) else None

    with replaced(RewriteRule, "try_rewrite", tried):
        yield
