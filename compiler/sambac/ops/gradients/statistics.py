"""Means and deviations of rows in the forms that keep their digits, and affine maps of channels."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

_LONG = 128  # elements from which broadcasting a number along a row costs little


def centre(b: Editor, rows: ir.Value) -> ir.Value:
    """Return `rows` minus the mean of each, along the last axis."""
    return b.op("Sub", rows, b.op("ReduceMean", rows, [-1], keepdims=1))


def reciprocal_root(b: Editor, value: ir.Value, epsilon: float) -> ir.Value:
    """Return (value + epsilon)^(-1/2)."""
    return b.op("Reciprocal", b.op("Sqrt", b.op("Add", value, epsilon)))


def reciprocal_size(b: Editor, rows: ir.Value, epsilon: float) -> ir.Value:
    """Return (mean of squares + epsilon)^(-1/2) of each row, [.., 1]; of centred rows, 1 / std."""
    squares = b.op("ReduceMean", b.op("Mul", rows, rows), [-1], keepdims=1)
    return reciprocal_root(b, squares, epsilon)


def affine(
    b: Editor,
    image: ir.Value,
    scale: ir.Value | None = None,
    offset: ir.Value | None = None,
    shift: ir.Value | None = None,
) -> ir.Value:
    """Return (image - shift) * scale + offset with numbers [C] for each channel of [N, C, *].

    Images are passed over once. BatchNormalization by a variance of one does all of it in one pass,
    on one thread. Where one operator is enough and rows are long, that runs on all threads.
    """
    _, channels, *sizes = shape_of(image)
    given = [
        (op, n) for op, n in (("Sub", shift), ("Mul", scale), ("Add", offset)) if n is not None
    ]
    if not sizes or (len(given) == 1 and prod(sizes) >= _LONG):
        for op, numbers in given:
            spread = b.op("Reshape", numbers, [channels, *(1 for _ in sizes)]) if sizes else numbers
            image = b.op(op, image, spread)
        return image
    dtype = image.dtype.numpy()  # type: ignore[union-attr]  # typed graph
    zeros, ones = np.zeros(channels, dtype), np.ones(channels, dtype)
    return b.op(
        "BatchNormalization",
        image,
        ones if scale is None else scale,
        zeros if offset is None else offset,
        zeros if shift is None else shift,
        ones,
        epsilon=0.0,
    )
