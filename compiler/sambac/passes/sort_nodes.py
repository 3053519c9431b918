"""Bring the nodes of every graph into an order in which each value is made before it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.nodes import first_unmade

from .base import OUT_OF_ORDER, Pass


@dataclass(frozen=True)
class SortNodes(Pass):
    """Sort topologically, subgraphs included; a model that is in order stays as it is.

    Raises `CompileError` for a cycle, and for a value that is read but never made.
    """

    name: ClassVar[str] = "sort_nodes"
    operators: ClassVar[frozenset[str] | None] = frozenset({OUT_OF_ORDER})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Sort the nodes of `model`."""
        if first_unmade(model.graph) is None:
            return ir.passes.PassResult(model, modified=False)
        try:
            model.graph.sort()
        except ValueError as error:
            raise CompileError(
                "the model's operators form a cycle, so none of them can run first; "
                "export the model again"
            ) from error
        unmade = first_unmade(model.graph)
        if unmade is not None:
            raise CompileError(
                f"{unmade} is read, but nothing in the model makes it; export the model again"
            )
        return ir.passes.PassResult(model, modified=True)
