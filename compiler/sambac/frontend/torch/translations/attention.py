"""Attention with dropout: the exporter leaves the dropout out."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from .operators import constant, op, rank, sizes, with_axes
from .randomness import dropped


def attention(
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ir.Value:
    """softmax(scale * q k^T + mask) v, with dropout of the weights; scale is 1 / sqrt(E) if None.

    Shapes: query [B, H, L, E], key [B, K, S, E], value [B, K, S, V], mask broadcast to
    [B, H, L, S]. H is a multiple of K. Leading axes may be missing.
    """
    missing = 4 - rank(query)
    query, key, value = (with_axes(x, missing) for x in (query, key, value))
    if dropout_p == 0:
        result = op.Attention(query, key, value, attn_mask, is_causal=int(is_causal), scale=scale)
    else:
        weights = _weights(query, _repeated(key, query), attn_mask, is_causal, scale)
        result = op.MatMul(dropped(weights, dropout_p), _repeated(value, query))
    return op.Squeeze(result, list(range(missing))) if missing else result


def _weights(
    query: ir.Value, key: ir.Value, mask: ir.Value | None, is_causal: bool, scale: float | None
) -> ir.Value:
    factor = 1 / math.sqrt(sizes(query)[-1]) if scale is None else scale
    scores = op.MatMul(op.Mul(query, factor), op.Transpose(key, perm=[0, 1, 3, 2]))
    if is_causal:
        assert query.dtype is not None
        below = np.tri(sizes(query)[2], sizes(key)[2], dtype=bool)
        bias = np.where(below, 0, -np.inf).astype(query.dtype.numpy())
        return op.Softmax(op.Add(scores, constant(bias)), axis=-1)
    if mask is None:
        return op.Softmax(scores, axis=-1)
    if mask.dtype != ir.DataType.BOOL:
        return op.Softmax(op.Add(scores, mask), axis=-1)
    # A row that is masked altogether is zero, not NaN, and so are its gradients.
    lowest = op.CastLike(float(np.finfo(np.float32).min) / 2, scores)
    weights = op.Softmax(op.Where(mask, scores, lowest), axis=-1)
    return op.Where(mask, weights, op.CastLike(0.0, weights))


def _repeated(x: ir.Value, query: ir.Value) -> ir.Value:
    """Return `x` with each of its heads repeated, so that it has as many as `query`."""
    batch, heads, length, width = sizes(x)
    groups = sizes(query)[1] // heads
    if groups == 1:
        return x
    shape = np.asarray([batch, heads, groups, length, width], np.int64)
    each = op.Expand(op.Unsqueeze(x, [2]), constant(shape))
    return op.Reshape(each, constant(np.asarray([batch, heads * groups, length, width], np.int64)))
