"""Distances between the rows of two matrices, whose slopes are zero where rows coincide."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from .norms import vector_norm
from .operators import constant, number, op, rank, stop, typed


def cdist(
    first: ir.Value, second: ir.Value, p: float = 2.0, compute_mode: int | None = None
) -> ir.Value:
    """|a - b|_p for each row a of `first` [..., P, M] and b of `second` [..., R, M]: [..., P, R].

    Differences are made one by one, also where PyTorch multiplies matrices to save time
    (`compute_mode`), which loses digits of small distances. Batches are broadcast.
    """
    del compute_mode
    assert first.dtype is not None
    rows = op.Unsqueeze(first, constant(np.asarray([-2], np.int64)))
    columns = op.Unsqueeze(second, constant(np.asarray([-3], np.int64)))
    away = op.Sub(rows, columns)
    away.dtype = first.dtype
    away.shape = ir.Shape([None] * (max(rank(first), rank(second)) + 1))
    return _farthest(away) if p == math.inf else vector_norm(away, p, [-1])


def euclidean(first: ir.Value, second: ir.Value) -> ir.Value:
    """What PyTorch decomposes `cdist` into where it would multiply matrices."""
    return cdist(first, second)


def _farthest(away: ir.Value) -> ir.Value:
    """max(|away|) over the last axis; each of equal ones gets the whole gradient."""
    size = typed(op.Abs(away), away)
    largest = vector_norm(typed(stop(away), away), math.inf, [-1], keepdim=True)
    nothing = op.Sub(size, stop(size))
    counts = op.And(op.Equal(size, largest), op.Not(op.IsNaN(nothing)))
    axes = constant(np.asarray([-1], np.int64))
    slopes = op.ReduceSum(op.Where(counts, nothing, number(0.0, away)), axes, keepdims=0)
    return op.Add(op.Squeeze(largest, axes), slopes)
