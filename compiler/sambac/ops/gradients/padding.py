"""The gradient of Pad, in every mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import input_at
from sambac.ops.family import InputGradient

from .rules import Point, constant_integers, cut, dtype_of, incoming, replayed, reverse, surround

Array = np.ndarray[Any, np.dtype[Any]]


def padded(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx = the inside of dy, plus what the margins copied from x; dvalue = the sum of the margins.

    Only mode `constant` reads the value. The margins of modes `reflect`, `edge` and `wrap` are runs
    of neighbours along one axis, up, down or one element again and again: each run of dy is added
    where it came from.
    """
    at = Point(node, incoming(node, gradients))
    to_value = (lambda: _to_value(b, at)) if _mode(node) == "constant" else None
    makers = [lambda: _to_input(b, at), None, to_value]
    return makers[: len(node.inputs)]


def _to_input(b: Editor, at: Point) -> ir.Value:
    mode, margins = _mode(at.node), _margins(at)
    if margins is not None and mode == "constant":
        return _inside(b, at, margins)
    if margins is None or any(min(margin) < 0 for margin in margins.values()):
        behind = b.constant(np.array(prod(shape_of(at.x)))) if mode == "constant" else None
        return replayed(b, at, (at.node.inputs[1], behind, input_at(at.node, 3)))
    dx = at.dy
    for axis, margin in margins.items():
        dx = _folded(b, dx, axis, margin, mode)
    return dx


def _to_value(b: Editor, at: Point) -> ir.Value:
    """Sum dy over what is not x."""
    ones = b.constant(np.ones((), dtype_of(at.dy).numpy()))
    parameters = [input_at(at.node, index) for index in (1, 3)]
    margin = b.op("Pad", b.zeros(at.x), parameters[0], ones, parameters[1])
    return b.op("ReduceSum", b.op("Mul", at.dy, margin), keepdims=0)


def _mode(node: ir.Node) -> str:
    attribute = node.attributes.get("mode")
    return "constant" if attribute is None else attribute.as_string()


def _margins(at: Point) -> dict[int, tuple[int, int]] | None:
    """Return what is added before and after by axis, None if a run decides."""
    pads = constant_integers(at.node, 1)
    rank = len(shape_of(at.x))
    axes = constant_integers(at.node, 3)
    if pads is None or (axes is None and input_at(at.node, 3) is not None):
        return None
    named = range(rank) if axes is None else [axis % rank for axis in axes]
    count = len(named)
    return {axis: (pads[i], pads[count + i]) for i, axis in enumerate(named)}


def _inside(b: Editor, at: Point, margins: dict[int, tuple[int, int]]) -> ir.Value:
    """Return the part of dy that is x; zeros where negative margins cut x off."""
    spans, cuts = {}, {}
    for axis, (before, after) in margins.items():
        size = shape_of(at.dy)[axis]
        spans[axis] = (max(before, 0), size - max(after, 0))
        cuts[axis] = (max(-before, 0), max(-after, 0))
    return surround(b, cut(b, at.dy, spans), cuts)


def _folded(b: Editor, dy: ir.Value, axis: int, margin: tuple[int, int], mode: str) -> ir.Value:
    """Return `dy` without its margins along `axis`, each run of them added where it came from."""
    before, after = margin
    size = shape_of(dy)[axis] - before - after
    inside = (before, before + size)
    total = cut(b, dy, {axis: inside})
    sources: Array = np.pad(np.arange(size), margin, mode=mode)  # type: ignore[call-overload]  # overloads want literals
    for start, stop, step in [*_runs(sources, 0, before), *_runs(sources, inside[1], len(sources))]:
        if step < 0:
            part = reverse(b, dy, axis, (start, stop))
        else:
            part = cut(b, dy, {axis: (start, stop)})
        if step == 0:
            part = b.op("ReduceSum", part, [axis], keepdims=1)
        low = int(sources[start:stop].min())
        rest = size - low - shape_of(part)[axis]
        total = b.op("Add", total, surround(b, part, {axis: (low, rest)}))
    return total


def _runs(sources: Array, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield where runs of neighbours begin and end, and whether they go up (1), down or stay."""
    while start < stop:
        end = start + 1
        step = int(sources[end] - sources[start]) if end < stop else 1
        if abs(step) > 1:
            step = 1
        while end < stop and sources[end] - sources[end - 1] == step:
            end += 1
        yield start, end, step
        start = end
