"""Dimensions without a size: exporters spell them in many ways, of which most are no names.

A name ties dimensions together: wherever it stands, the size is the same. What exporters write
where they know neither size nor name (`?`, `None`, -1, nothing) must not tie anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from sambac.graph.traversal import all_nodes

_NO_NAMES = frozenset({"", "?", "*", "none", "null"})


def open_dimensions(model: ir.Model) -> None:
    """Make dimensions of negative size, and of names that are none, open ones without a name.

    That is done to all values of `model`, in place: inputs, outputs, what is declared of others,
    in subgraphs and functions too.
    """
    for value in _values(model):
        if value.shape is not None and any(_is_unnamed(dim) for dim in value.shape):
            dims = [None if _is_unnamed(dim) else dim for dim in value.shape]
            value.shape = ir.Shape(dims)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        for graph in (body, *body.subgraphs()):
            yield from graph.inputs
            yield from graph.outputs
        for node in all_nodes(body):
            yield from node.outputs


def _is_unnamed(dim: int | ir.SymbolicDim) -> bool:
    if isinstance(dim, int):
        return dim < 0
    return dim.value is not None and _is_no_name(dim.value)


def _is_no_name(name: str) -> bool:
    text = name.strip().casefold()
    return text in _NO_NAMES or (text.startswith("-") and text[1:].isdecimal())
