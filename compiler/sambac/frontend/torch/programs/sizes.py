"""Open sizes are called what the user calls them; torch.export has symbols for them.

[s50, 4, s11, 32]      ->  [batch, 4, past, 32]          with Dim("batch"), Dim("past")
[s50, 4, s11 + 1, 32]  ->  [batch, 4, past + 1, 32]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx_ir as ir
import torch
from torch.export import Dim, ExportedProgram
from torch.export.dynamic_shapes import _combine_args, _tree_map_with_path
from torch.utils import _pytree as pytree

from sambac.frontend.torch.modules.inputs import Example
from sambac.graph.names import FreshNames

_SYMBOL = re.compile(r"\b[A-Za-z_]\w*\b(?!\()")
"""A name in what a size is, such as `2*s50`, but not of a function, as in `Max(s50, s11)`."""


def size_names(
    module: torch.nn.Module, example: Example, program: ExportedProgram
) -> Mapping[str, str]:
    """Return the names that `example` gives open sizes, by the symbols that `program` has."""
    if not example.shapes:
        return {}
    named = _named_axes(module, example)
    inputs = program.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    names: dict[str, str] = {}
    leaves = pytree.tree_leaves((example.args, dict(example.kwargs)))
    for leaf, name in zip(leaves, inputs, strict=True):
        for axis, called in named.get(id(leaf), {}).items():
            size = values[str(name)].shape[axis]
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                names[str(size.node.expr)] = called
    return names


def _named_axes(module: torch.nn.Module, example: Example) -> dict[int, dict[int, str]]:
    """Return the names of open axes of the tensors in `example`, by what `id` says of these."""
    named: dict[int, dict[int, str]] = {}

    def note(_path: object, leaf: object, axes: Mapping[int, object] | Sequence[object]) -> None:
        if isinstance(leaf, torch.Tensor) and axes:
            pairs = axes.items() if isinstance(axes, Mapping) else enumerate(axes)
            called = {axis: dim.__name__ for axis, dim in pairs if type(dim) is Dim}
            named[id(leaf)] = called

    inputs = _combine_args(module, example.args, dict(example.kwargs))
    given = tuple(inputs.values()) if isinstance(example.shapes, (tuple, list)) else inputs
    shapes = tuple(example.shapes) if isinstance(example.shapes, list) else example.shapes
    _tree_map_with_path(note, given, shapes, tree_name="inputs")
    return named


def rename_sizes(model: ir.Model, names: Mapping[str, str]) -> None:
    """Replace symbols of open sizes by their `names` in all shapes of `model`, in place.

    A symbol that has none, and is called like one of them, gets another name.
    """
    if not names:
        return
    values = [value for value in _values(model).values() if not _is_known(value)]
    sizes = (dim for value in values for dim in value.shape or () if not isinstance(dim, int))
    symbols = {name for dim in sizes for name in _SYMBOL.findall(dim.value or "")}
    fresh = FreshNames({*symbols, *names.values()})
    taken = sorted(symbols.intersection(names.values()).difference(names))
    names = {**names, **{name: fresh(name) for name in taken}}
    for value in values:
        value.shape = ir.Shape([_renamed(dim, names) for dim in value.shape or ()])


def _values(model: ir.Model) -> dict[int, ir.Value]:
    """Return inputs and results of graphs and of nodes by identity, each of them once."""
    found: list[ir.Value] = []
    for graph in model.graphs():
        found += (*graph.inputs, *graph.outputs, *(one for node in graph for one in node.outputs))
    return {id(value): value for value in found}


def _is_known(value: ir.Value) -> bool:
    return value.shape is None or value.shape.is_static()


def _renamed(dim: int | ir.SymbolicDim, names: Mapping[str, str]) -> int | ir.SymbolicDim:
    if isinstance(dim, int) or dim.value is None:
        return dim
    return ir.SymbolicDim(_SYMBOL.sub(lambda name: names.get(name[0], name[0]), dim.value))
