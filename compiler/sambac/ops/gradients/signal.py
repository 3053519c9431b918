"""Gradients of Fourier transforms, which are linear: the adjoint transform of the gradient.

The last axis holds complex numbers as (real, imaginary), or real ones alone; n is the length of the
transform. A real input takes the real part of what would be the gradient of a complex one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import input_at, int_attribute
from sambac.ops.family import GradientRule, InputGradient

from .rules import (
    Point,
    constant_integers,
    cut,
    dtype_of,
    incoming,
    operand,
    reshape,
    surround,
    transpose,
    unary,
)

_FRAMES, _SAMPLES = 1, 2
"""Axes of the frames of a short-time transform: [batch, frame, sample, complex]."""


def _transformed(b: Editor, at: Point) -> ir.Value:
    """dX = n * inverse(dY), or dX = forward(dY) / n of an inverse transform.

    With all frequencies; of half of them dY has zeros for the others. A real result of an inverse
    transform came from half of the frequencies, which count double but for those without a twin.
    """
    axis = _axis(at.node)
    size = shape_of(at.x)[axis]
    inverse, onesided = (int_attribute(at.node, name) == 1 for name in ("inverse", "onesided"))
    if not inverse:
        return _fit(b, _adjoint(b, at.dy, axis, _length(at.node, size)), at.x, axis)
    length = _length(at.node, 2 * (size - 1) if onesided else size)
    spectrum = b.op("DFT", at.dy, None, np.asarray(axis), onesided=int(onesided))
    scale = np.full(shape_of(spectrum)[axis], 1 / length)
    if onesided:
        scale[1 : (length + 1) // 2] *= 2
    row = scale.reshape(-1, *[1] * (rank_of(at.x) - 1 - axis)).astype(dtype_of(at.x).numpy())
    return _fit(b, b.op("Mul", spectrum, row), at.x, axis)


def _axis(node: ir.Node) -> int:
    return (constant_integers(node, 2) or (-2,))[0] % rank_of(operand(node, 0))


def _length(node: ir.Node, default: int) -> int:
    return (constant_integers(node, 1) or (default,))[0]


def _adjoint(b: Editor, dy: ir.Value, axis: int, length: int) -> ir.Value:
    """Return n * inverse(dY), where dY has zeros for the frequencies that it lacks."""
    whole = surround(b, dy, {axis: (0, length - shape_of(dy)[axis])})
    return b.op("Mul", b.op("DFT", whole, None, np.asarray(axis), inverse=1), float(length))


def _fit(b: Editor, gradient: ir.Value, x: ir.Value, axis: int) -> ir.Value:
    """Cut or fill `gradient` along `axis` to the size of `x`; keep the real part if x is real."""
    have, want = shape_of(gradient)[axis], shape_of(x)[axis]
    kept = cut(b, gradient, {axis: (0, min(have, want)), rank_of(x) - 1: (0, shape_of(x)[-1])})
    return surround(b, kept, {axis: (0, max(want - have, 0))})


def _short_time(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dX = the sum of the overlapping frames dF * window; dwindow = sum of dF * F.

    F are the frames of the signal, dF = n * inverse(dY).
    """
    dy, window = incoming(node, gradients), input_at(node, 2)
    signal = operand(node, 0)
    length, step = _frame_length(node), (constant_integers(node, 1) or (1,))[0]

    def frames() -> ir.Value:
        found = _adjoint(b, dy, _SAMPLES, length)
        return cut(b, found, {3: (0, shape_of(signal)[-1])})

    def by_signal() -> ir.Value:
        parts = frames()
        if window is not None:
            parts = b.op("Mul", parts, reshape(b, window, (length, 1)))
        return _overlapped(b, parts, signal, step)

    def by_window() -> ir.Value:
        starts = step * np.arange(shape_of(dy)[_FRAMES])[:, None]
        cuts = b.op("Gather", signal, starts + np.arange(length), axis=1)
        return b.op("ReduceSum", b.op("Mul", frames(), cuts), [0, 1, 3], keepdims=0)

    return [by_signal, None, by_window][: len(node.inputs)]


def _frame_length(node: ir.Node) -> int:
    window = input_at(node, 2)
    default = shape_of(operand(node, 0))[1] if window is None else shape_of(window)[0]
    return (constant_integers(node, 3) or (default,))[0]


def _overlapped(b: Editor, frames: ir.Value, signal: ir.Value, step: int) -> ir.Value:
    """Add up frames [batch, frame, sample, complex] where they lie in the signal."""
    batch, count, length, parts = shape_of(frames)
    columns = reshape(b, transpose(b, frames, (0, 3, 2, 1)), (batch, parts * length, count))
    size = shape_of(signal)[1]
    added = b.op("Col2Im", columns, [1, size], [1, length], strides=(1, step))
    return transpose(b, reshape(b, added, (batch, parts, size)), (0, 2, 1))


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "DFT": unary(_transformed),
    "STFT": _short_time,
})  # fmt: skip
