"""Losses whose ONNX form loses something: label smoothing, soft targets, large logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .empties import averaged
from .operators import (
    constant,
    from_the_start,
    number,
    op,
    rank,
    sizes,
    stop,
    typed,
    with_axes,
    without_sign,
)

_REDUCTIONS = ("none", "mean", "sum")
"""As PyTorch numbers them."""


@dataclass(frozen=True)
class _Settings:
    reduction: str
    ignore_index: int
    smoothing: float


def cross_entropy(
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> ir.Value:
    """Cross entropy of logits [N, C, ...] with classes [N, ...] or probabilities [N, C, ...].

    The axis N may be missing. `weight` has a number for each class.
    """
    ignored = without_sign(ignore_index, target.dtype)
    settings = _Settings(_REDUCTIONS[reduction], ignored, label_smoothing)
    target = from_the_start(target)
    if rank(x) > 1:
        return _batched(x, target, weight, settings)
    loss = _batched(with_axes(x, 1), with_axes(target, 1), weight, settings)
    return op.Squeeze(loss, [0]) if settings.reduction == "none" else loss


def nll_loss(
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> ir.Value:
    """-w_t x_t for logarithms [N, C, ...] and classes t [N, ...]; the axis N may be missing."""
    ignored = without_sign(ignore_index, target.dtype)
    named = {"reduction": _REDUCTIONS[reduction], "ignore_index": ignored}
    target = from_the_start(target)
    if rank(x) > 1:
        return op.NegativeLogLikelihoodLoss(x, target, weight, **named)
    target = target if rank(target) else with_axes(target, 1)
    loss = op.NegativeLogLikelihoodLoss(with_axes(x, 1), target, weight, **named)
    return op.Squeeze(loss, [0]) if reduction == 0 else loss


def nll_loss_forward(
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> tuple[ir.Value, ir.Value]:
    """Return the same, as decomposed programs have it, and the sum of the weights that count."""
    ignored = op.Equal(target, op.CastLike(ignore_index, target))
    loss = nll_loss(x, target, weight, reduction, ignore_index)
    return loss, _total(target, weight, ignored, x)


def _batched(
    x: ir.Value, target: ir.Value, weight: ir.Value | None, settings: _Settings
) -> ir.Value:
    if target.dtype is not None and target.dtype.is_floating_point():
        return _with_probabilities(x, target, weight, settings)
    if settings.smoothing == 0:
        named = {"reduction": settings.reduction, "ignore_index": settings.ignore_index}
        if x.shape is not None and 0 in x.shape.dims:  # the operator's own body cannot be
            return op.NegativeLogLikelihoodLoss(op.LogSoftmax(x, axis=1), target, weight, **named)
        return op.SoftmaxCrossEntropyLoss(x, target, weight, **named)
    return _smoothed(x, target, weight, settings)


def _with_probabilities(
    x: ir.Value, target: ir.Value, weight: ir.Value | None, settings: _Settings
) -> ir.Value:
    """-sum_c(w_c * t_c * log p_c), its mean over N and the axes after C; t smoothed first."""
    (classes,) = sizes(x, 1)
    share = settings.smoothing
    if share:
        target = op.Add(op.Mul(target, 1.0 - share), share / classes)
    terms = op.Mul(_weighted(op.LogSoftmax(x, axis=1), weight, rank(x)), target)
    return _reduced(op.Neg(op.ReduceSum(terms, [1], keepdims=0)), settings.reduction, x)


def _smoothed(
    x: ir.Value, target: ir.Value, weight: ir.Value | None, settings: _Settings
) -> ir.Value:
    """(1 - e) * nll(log p, target) + e / C * -sum_c(w_c * log p_c), without what is ignored.

    The mean of both terms is over the weights of the targets, as that of nll is.
    """
    share, reduction, (classes,) = settings.smoothing, settings.reduction, sizes(x, 1)
    log_p = op.LogSoftmax(x, axis=1)
    hard = op.NegativeLogLikelihoodLoss(
        log_p, target, weight, reduction=reduction, ignore_index=settings.ignore_index
    )
    ignored = op.Equal(target, op.CastLike(settings.ignore_index, target))
    spread = op.Neg(op.ReduceSum(_weighted(log_p, weight, rank(x)), [1], keepdims=0))
    spread = op.Where(ignored, op.CastLike(0.0, x), spread)
    if reduction != "none":
        spread = op.ReduceSum(spread, keepdims=0)
    if reduction == "mean":
        spread = op.Div(spread, _total(target, weight, ignored, x))
    return op.Add(op.Mul(hard, 1.0 - share), op.Mul(spread, share / classes))


def _total(
    target: ir.Value, weight: ir.Value | None, ignored: ir.Value, like: ir.Value
) -> ir.Value:
    """Return the sum of the weights of the targets that count, or their number."""
    zero = op.CastLike(0.0, like)
    if weight is None:
        each = op.Where(ignored, zero, op.CastLike(1.0, like))
    else:
        known = op.Where(ignored, op.CastLike(0, target), target)
        each = op.Where(ignored, zero, op.Gather(weight, known))
    return op.ReduceSum(each, keepdims=0)


def _weighted(log_p: ir.Value, weight: ir.Value | None, axes: int) -> ir.Value:
    if weight is None:
        return log_p
    shape = np.asarray([1, -1, *([1] * (axes - 2))], np.int64)
    return op.Mul(log_p, op.Reshape(weight, constant(shape)))


def binary_cross_entropy(
    p: ir.Value, target: ir.Value, weight: ir.Value | None = None, reduction: int = 1
) -> ir.Value:
    """-w (t log p + (1 - t) log(1 - p)), whose logarithms are at least -100.

    The gradient of p is w (p - t) / max(p (1 - p), 1e-12), and so finite where p is 0 or 1; that of
    t is w (log(1 - p) - log p) of the very logarithms, and so infinite there. Half types are
    computed in float32, as PyTorch does: 1e-12 is none of their numbers.
    """
    if p.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        heavy = None if weight is None else _in_float32(weight)
        wide = binary_cross_entropy(_in_float32(p), _in_float32(target), heavy, reduction)
        return op.CastLike(wide, p)
    p = _exact(p)
    rest = op.Sub(1.0, p)
    lowest = number(_LOWEST_LOG, p)
    yes, no = stop(op.Log(p)), stop(op.Log(rest))
    low, high = op.Max(yes, lowest), op.Max(no, lowest)
    fixed = stop(target)
    loss = op.Neg(op.Add(op.Mul(fixed, low), op.Mul(op.Sub(1.0, fixed), high)))
    loss = op.Add(loss, _leaning(op.Sub(target, fixed), op.Sub(no, yes), p))
    slope = op.Div(op.Sub(p, target), op.Max(op.Mul(p, rest), number(_LEAST_SPREAD, p)))
    loss = op.Add(loss, op.Mul(stop(slope), op.Sub(p, stop(p))))
    return _reduced(loss if weight is None else op.Mul(loss, weight), reduction, p)


def _exact(p: ir.Value) -> ir.Value:
    """Return probabilities that a sigmoid made with the digits that small ones have.

    onnxruntime's sigmoids are 8e-8 off, and 0 below -18: so would be the gradient of the loss.
    """
    sigmoid = p.producer()
    if sigmoid is None or sigmoid.op_type != "Sigmoid" or p.dtype != ir.DataType.FLOAT:
        return p
    x = sigmoid.inputs[0]
    return typed(op.Where(op.Less(x, 0.0), op.Exp(op.Neg(op.Softplus(op.Neg(x)))), p), p)


def _leaning(zero: ir.Value, slope: ir.Value, like: ir.Value) -> ir.Value:
    """Return `zero`, a difference of equals, with the gradient `slope`, which may be infinite."""
    steep = op.IsInf(slope)
    # A root is infinitely steep at 0.
    root = op.Sqrt(op.Where(steep, zero, number(1.0, like)))
    finite = op.Mul(op.Where(steep, number(0.0, like), slope), zero)
    return op.Where(steep, op.Mul(op.Sign(slope), root), finite)


_LOWEST_LOG, _LEAST_SPREAD = -100.0, 1e-12


def _in_float32(value: ir.Value) -> ir.Value:
    result = op.Cast(value, to=int(ir.DataType.FLOAT))
    result.dtype, result.shape = ir.DataType.FLOAT, value.shape
    return result


def binary_cross_entropy_with_logits(
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    pos_weight: ir.Value | None = None,
    reduction: int = 1,
) -> ir.Value:
    """(1 - t) * x + (1 + (p - 1) * t) * softplus(-x), finite for logits of any size.

    `pos_weight` p multiplies the loss of positive targets.
    """
    penalty = op.Softplus(op.Neg(x))
    if pos_weight is not None:
        penalty = op.Mul(penalty, op.Add(op.Mul(op.Sub(pos_weight, 1.0), target), 1.0))
    loss = op.Add(op.Mul(op.Sub(1.0, target), x), penalty)
    return _reduced(loss if weight is None else op.Mul(loss, weight), reduction, x)


def mse_loss(x: ir.Value, target: ir.Value, reduction: int = 1) -> ir.Value:
    """(x - target)^2."""
    away = op.Sub(x, target)
    return _reduced(op.Mul(away, away), reduction, x, target)


def smooth_l1_loss(
    x: ir.Value, target: ir.Value, reduction: int = 1, beta: float = 1.0
) -> ir.Value:
    """d^2 / (2 beta) where d = |x - target| is below `beta`, else d - beta / 2."""
    return _reduced(_bent(x, target, beta), reduction, x, target)


def huber_loss(x: ir.Value, target: ir.Value, reduction: int = 1, delta: float = 1.0) -> ir.Value:
    """d^2 / 2 where d = |x - target| is below `delta`, else delta (d - delta / 2)."""
    return _reduced(op.Mul(_bent(x, target, delta), delta), reduction, x, target)


def _bent(x: ir.Value, target: ir.Value, beta: float) -> ir.Value:
    away = op.Sub(x, target)
    size = op.Abs(away)
    if beta == 0:
        return size
    far = op.GreaterOrEqual(size, number(beta, x))  # what is no number has its slope elsewhere
    small = op.Where(far, number(0.0, x), away)
    square = op.Mul(op.Mul(small, small), 0.5 / beta)
    return op.Where(far, op.Sub(size, 0.5 * beta), square)


def log_sigmoid(x: ir.Value) -> ir.Value:
    """-softplus(-x), finite for any x."""
    return op.Neg(op.Softplus(op.Neg(x)))


def multilabel_margin_loss(x: ir.Value, target: ir.Value, reduction: int = 1) -> ir.Value:
    """Sum of max(0, 1 - x_t + x_i) over classes t of a sample and all others i, by their number C.

    `x` and `target` are [N, C], or [C]; the classes of a sample end before its first -1.
    """
    if rank(x) < 2:
        x, target = (with_axes(value, 2 - rank(value)) for value in (x, target))
        loss = multilabel_margin_loss(x, target, reduction)
        return op.Squeeze(loss, [0]) if reduction == 0 else loss
    (classes,) = sizes(x, 1)
    ended = op.CumSum(op.Cast(op.Less(target, number(0, target)), to=ir.DataType.INT64), 1)
    is_label = op.Equal(ended, constant(np.asarray(0, np.int64)))
    labels = op.Where(is_label, target, number(0, target))
    numbers = op.Cast(constant(np.arange(classes)), to=target.dtype)
    named = op.And(op.Equal(op.Unsqueeze(labels, [2]), numbers), op.Unsqueeze(is_label, [2]))
    is_class = op.ReduceMax(op.Cast(named, to=ir.DataType.INT32), [1], keepdims=1)
    others = op.Equal(is_class, constant(np.asarray(0, np.int32)))
    chosen = op.GatherElements(x, labels, axis=1)
    terms = op.Add(op.Sub(1.0, op.Unsqueeze(chosen, [2])), op.Unsqueeze(x, [1]))
    counts = op.And(op.And(op.Unsqueeze(is_label, [2]), others), op.Greater(terms, number(0.0, x)))
    total = op.ReduceSum(op.Where(counts, terms, number(0.0, x)), [1, 2], keepdims=0)
    return _reduced(op.Div(total, float(classes)), reduction, x)


def _reduced(loss: ir.Value, reduction: int | str, *operands: ir.Value) -> ir.Value:
    """Return `loss`, computed from `operands`, reduced as PyTorch's name or number says."""
    name = _REDUCTIONS[reduction] if isinstance(reduction, int) else reduction
    if name == "none":
        return loss
    return averaged(loss, *operands) if name == "mean" else op.ReduceSum(loss, keepdims=0)
