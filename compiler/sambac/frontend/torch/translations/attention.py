"""Attention with dropout or with more axes: the exporter leaves them out.

A row of a mask that is -inf throughout gives zeros, and so are its gradients.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from .operators import constant, number, op, rank, sizes, typed, with_axes
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
    [B, H, L, S]. H is a multiple of K. Leading axes may be missing, and there may be more of them.
    """
    missing = max(0, 4 - max(map(rank, (query, key, value))))
    query, key, value = (with_axes(x, missing) for x in (query, key, value))
    if scale is not None and scale <= 0:  # which ONNX's operator does not take
        query, scale = typed(op.Mul(query, number(scale, query)), query), 1.0
    if dropout_p == 0 and _is_common(query, key, value):
        mask = _summed_up(attn_mask)
        result = op.Attention(query, key, value, mask, is_causal=int(is_causal), scale=scale)
    else:
        lengths = sizes(query)[-2], sizes(key)[-2]
        factor = 1 / math.sqrt(sizes(query)[-1]) if scale is None else scale
        if enable_gqa:
            key, value = _repeated(key, query), _repeated(value, query)
        scores = op.MatMul(op.Mul(query, factor), _turned(key))
        hidden, mask = _hidden(attn_mask)
        weights = _weights(scores, lengths, mask, is_causal)
        kept = dropped(weights, dropout_p) if dropout_p else weights
        result = op.MatMul(kept, value)
        if hidden is not None:
            result = typed(op.Where(hidden, number(0.0, result), result), result)
    return op.Squeeze(result, list(range(missing))) if missing else result


def _is_common(*operands: ir.Value) -> bool:
    """Tell whether `operands` have four axes and one batch, as ONNX has them."""
    shapes = [x.shape for x in operands]
    if any(shape is None for shape in shapes):
        return True
    batches = [shape[0] for shape in shapes if shape is not None and len(shape) == 4]
    known = {size for size in batches if isinstance(size, int)}
    return len(batches) == len(operands) and len(known) <= 1


def _summed_up(mask: ir.Value | None) -> ir.Value | None:
    """Return `mask` with zeros in rows of the lowest number, if it is of float16.

    PyTorch adds it to scores in float32, of which such a row leaves the shares that they have
    without a mask; in float16 nothing is left of them.
    """
    if mask is None or mask.dtype != ir.DataType.FLOAT16:
        return mask
    most = float(np.finfo(np.float16).max)
    low = op.Equal(_largest(mask), number(-most, mask))
    return typed(op.Add(mask, op.Where(low, number(most, mask), number(0.0, mask))), mask)


def _largest(mask: ir.Value) -> ir.Value:
    """Return the largest number of each row."""
    return op.ReduceMax(mask, constant(np.asarray([-1], np.int64)), keepdims=1)


def _hidden(mask: ir.Value | None) -> tuple[ir.Value | None, ir.Value | None]:
    """Return which rows of `mask` are -inf throughout, and `mask` with zeros there.

    None is for masks that add nothing.
    """
    if mask is None or mask.dtype == ir.DataType.BOOL:
        return None, mask
    hidden = op.Equal(_largest(mask), number(-math.inf, mask))
    return hidden, typed(op.Where(hidden, number(0.0, mask), mask), mask)


def _turned(x: ir.Value) -> ir.Value:
    *leading, length, width = range(rank(x))
    return op.Transpose(x, perm=[*leading, width, length])


def _weights(
    scores: ir.Value, lengths: tuple[int, int], mask: ir.Value | None, is_causal: bool
) -> ir.Value:
    if is_causal:
        below = np.tri(*lengths, dtype=bool)
        bias = op.CastLike(constant(np.where(below, 0, -np.inf).astype(np.float32)), scores)
        return op.Softmax(op.Add(scores, bias), axis=-1)
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
    *batch, heads, length, width = sizes(x)
    groups = sizes(query)[-3] // heads
    if groups == 1:
        return x
    shape = np.asarray([*batch, heads, groups, length, width], np.int64)
    each = op.Expand(op.Unsqueeze(x, [-3]), constant(shape))
    whole = (*batch, heads * groups, length, width)
    result = op.Reshape(each, constant(np.asarray(whole, np.int64)))
    result.shape = ir.Shape(whole)
    return result
