"""Inline model-local functions, so that the planners see every operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes import common

from sambac.errors import CompileError
from sambac.kernels import since_version


@dataclass(frozen=True)
class InlineFunctions(ir.passes.InPlacePass):
    """Replace every call of a function by its body, recursively and inside subgraphs too.

    Values of attributes come from the call, then from the function's defaults. Afterwards the
    model has no functions. Raises `CompileError` for functions that call themselves and for
    bodies written for an opset that means something else in the model.
    """

    name: ClassVar[str] = "inline_functions"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inline all calls in `model`."""
        if not model.functions:
            return ir.passes.PassResult(model, modified=False)
        for function in model.functions.values():
            function.sort()
            _adopt_opsets(function, model)
        try:
            common.InlinePass()(model)
        except ir.passes.PreconditionError as error:
            raise CompileError(
                f"the model's functions call themselves ({error}); export it without recursion"
            ) from error
        model.functions.clear()
        return ir.passes.PassResult(model, modified=True)


def _adopt_opsets(function: ir.Function, model: ir.Model) -> None:
    """Give `function` the model's opsets, where all of its operators mean the same in both."""
    for domain, version in function.opset_imports.items():
        wanted = model.opset_imports.setdefault(domain, version)
        if wanted == version:
            continue
        for node in function.all_nodes():
            if node.domain == domain and (
                since_version(domain, node.op_type, version)
                != since_version(domain, node.op_type, wanted)
            ):
                raise CompileError(
                    f"the function '{function.name}' uses {node.op_type} of opset {version}, the "
                    f"model opset {wanted}, where it differs; export both with the same opset"
                )
        function.opset_imports[domain] = wanted
