"""Updates of large parameters chunk by chunk, so that what lies between operators stays in a cache.

A chain of elementwise operators over a vector that no cache holds fetches it from memory again for
every operator. Large packs are laid out as rows (`training.packs`), and here

    a = Mul(v, s)  b = GatedAdd(a, u, gates)   ->   b = Scan(body, v, u, gates)

where the body is the chain over one row: `v`, `u` [rows, lanes, n], `gates` [rows, lanes, 1], `s` a
number, which the body reads from outside. What is written over an operand is written row by row,
after the last operator that reads the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import networkx as nx
import onnx_ir as ir

from sambac.graph.control_flow import Values, scan
from sambac.graph.editor import Editor
from sambac.graph.lanes import LANES
from sambac.graph.nodes import copy_node, static_shape, supersede
from sambac.ops import is_elementwise
from sambac.passes.base import Pass
from sambac.training.packs import ROW_BYTES, SHORTEST_BYTES

PROCESSOR = "processor"
"""What a program of loops requires of the host: that what runs it has caches."""

_FEWEST = 3
"""Operators from which on a chain gains: one or two fetch little that they would not have to."""


@dataclass(frozen=True)
class UpdateInChunks(Pass):
    """Apply chains of elementwise operators over rows to one row after the other."""

    name: ClassVar[str] = "update_in_chunks"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model`, whose operators stand in the order in which they can run."""
        chains = [chain for chain in _chains(model.graph) if _is_closed(chain)]
        editor = Editor(model)
        for chain in chains:
            _rewrite(editor, chain)
        return ir.passes.PassResult(model, modified=bool(chains))


def _chains(graph: ir.Graph) -> Iterator[list[ir.Node]]:
    """Yield operators over rows that have vectors in common, each time in their order."""
    along: nx.Graph[ir.Node | ir.Value] = nx.Graph()
    for node in graph:
        if _is_by_rows(node):
            shape = static_shape(node.outputs[0])
            along.add_edges_from((node, value) for value in _shaped(node, shape))
    for found in nx.connected_components(along):
        chain = [node for node in graph if node in found]
        if len(chain) >= _FEWEST:
            yield chain


def has_rows(value: ir.Value) -> bool:
    """Tell whether `value` is a stack of such rows as large vectors are laid out in."""
    shape = static_shape(value)
    if shape is None or len(shape) != 3 or value.dtype is None:
        return False
    rows, lanes, length = shape
    return (
        rows > 1
        and lanes == LANES
        and SHORTEST_BYTES <= lanes * length * value.dtype.itemsize <= ROW_BYTES
    )


def _is_by_rows(node: ir.Node) -> bool:
    """Tell whether each row of the result follows from rows, numbers of rows and numbers."""
    made = node.outputs[0]
    shape = static_shape(made)
    if not has_rows(made) or shape is None or len(node.outputs) != 1:
        return False
    read = (static_shape(value) for value in node.inputs if value is not None)
    fits = all(each in (shape, (*shape[:-1], 1), (1,), ()) for each in read)
    return fits and is_elementwise(node.domain, node.op_type)


def _shaped(node: ir.Node, shape: tuple[int, ...] | None) -> Iterator[ir.Value]:
    """Yield what `node` reads and makes in this shape."""
    for value in (*node.inputs, *node.outputs):
        if value is not None and static_shape(value) == shape:
            yield value


def _is_closed(chain: Sequence[ir.Node]) -> bool:
    """Tell whether no other operator reads what the chain makes."""
    inside = frozenset(chain)
    return all(use.node in inside for node in chain for use in node.outputs[0].uses())


def _rewrite(editor: Editor, chain: Sequence[ir.Node]) -> None:
    made = dict.fromkeys(node.outputs[0] for node in chain)
    results = [value for value in made if value.is_graph_output()]
    read = dict.fromkeys(value for node in chain for value in node.inputs if value is not None)
    rows = [value for value in read if value not in made and prod(static_shape(value) or ()) > 1]
    editor.rewrite(chain[-1])

    def step(b: Editor, states: Values, slices: Values) -> tuple[Values, Values]:
        copies = dict(zip(rows, slices, strict=True))
        for node in chain:
            b.put(_of_a_row(node, copies, b))
        return (), [copies[value] for value in results]

    for old, new in zip(results, scan(editor, step, (), rows)[1], strict=True):
        supersede(old, new)
    for node in reversed(chain):
        editor.remove(node)


def _of_a_row(node: ir.Node, copies: dict[ir.Value, ir.Value], b: Editor) -> ir.Node:
    """Return a copy of `node` that computes one row."""
    copy = copy_node(node, copies, "", lambda value: b.names.value(f"{value.name}_row"))
    for value in copy.outputs:
        value.shape = ir.Shape((static_shape(value) or ())[1:])
    return copy
