"""Sums of pieces that lie side by side among zeros, written as the row of pieces.

    Add(Pad(a: 0 before, n behind), Pad(b: m before, 0 behind))  ->  Concat(a, b)

for any number of pieces in any order, along one axis, where they neither overlap nor leave gaps and
nothing else reads the padded ones; zeros at the ends remain a Pad. These are the gradients of what
is cut into slices: halves of rotary embeddings, queries, keys and values. The sums are four times
slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, static_shape
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, integers, made_by, scalar


@dataclass(frozen=True)
class _Piece:
    """What a Pad puts between zeros along one axis."""

    value: ir.Value
    axis: int
    start: int
    stop: int


def join(editor: Editor, node: ir.Node) -> str | None:
    """Add(Pad(a), Pad(b)) -> Concat(a, b), perhaps padded at its ends."""
    shape = static_shape(node.outputs[0])
    pieces = _pieces(node, shape) if shape is not None else None
    if shape is None or pieces is None:
        return "an input is no padding by zeros along one axis, or has another reader"
    pieces.sort(key=lambda piece: piece.start)
    axis = pieces[0].axis
    if any(piece.axis != axis for piece in pieces):
        return "the paddings are along different axes"
    if any(one.stop != other.start for one, other in pairwise(pieces)):
        return "the pieces overlap or leave a gap"
    values = [piece.value for piece in pieces]
    start, stop = pieces[0].start, pieces[-1].stop
    if (start, stop) == (0, shape[axis]):
        editor.replace(node, "Concat", *values, axis=axis)
        return None
    row = ir.Shape([*shape[:axis], stop - start, *shape[axis + 1 :]])
    like = ir.Value(name="", type=node.outputs[0].type, shape=row)
    joined = editor.op("Concat", *values, like=like, axis=axis)
    pads = np.zeros((2, len(shape)), np.int64)
    pads[:, axis] = start, shape[axis] - stop
    name = f"{node.outputs[0].name}_pads"
    editor.replace(node, "Pad", joined, editor.initializer(pads.reshape(-1), name))
    return None


def _pieces(node: ir.Node, shape: tuple[int, ...]) -> list[_Piece] | None:
    """Return what the sum made by `node` adds, None unless all of it is padded."""
    if node.op_type == "Pad":
        piece = _piece(node, shape)
        return None if piece is None else [piece]
    pieces: list[_Piece] = []
    for value in node.inputs:
        inner = made_by(value, "Add", "Pad")
        if inner is None or value is None or not has_one_reader(value):
            return None
        found = _pieces(inner, shape)
        if found is None:
            return None
        pieces.extend(found)
    return pieces


def _piece(node: ir.Node, shape: tuple[int, ...]) -> _Piece | None:
    """Return what a Pad pads to `shape`, None unless with zeros along one axis."""
    value, pads, axes = node.inputs[0], integers(input_at(node, 1)), input_at(node, 3)
    source, mode = static_shape(value), node.attributes.get("mode")
    if value is None or source is None or pads is None or (axes and integers(axes) is None):
        return None
    if mode is not None and mode.as_string() != "constant":
        return None
    if input_at(node, 2) is not None and scalar(node.inputs[2]) != 0:
        return None
    named = integers(axes) or tuple(range(len(source)))
    margins = zip(named, pads, pads[len(named) :], strict=False)
    real = [(axis % len(source), before) for axis, before, after in margins if before or after]
    if len(real) != 1 or static_shape(node.outputs[0]) != shape or min(pads) < 0:
        return None
    axis, before = real[0]
    return _Piece(value, axis, before, before + source[axis])


@dataclass(frozen=True)
class JoinPads(RulePass):
    """Write sums of pieces that lie side by side among zeros as concatenations."""

    name: ClassVar[str] = "join_pads"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Pad"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Add": (join,)}
