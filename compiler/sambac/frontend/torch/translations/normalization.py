"""BatchNorm as it trains, which the exporter writes as it evaluates, and norms of nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten__native_batch_norm_no_training as aten_settled,
)

from .operators import constant, op, rank, several, sizes, stop


def batch_norm(
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value,
    running_var: ir.Value,
    *settings: float,
) -> tuple[ir.Value, ...]:
    """BatchNorm, mean and 1 / deviation of the batch, and the next running statistics.

    `settings` are whether it trains, the momentum m, and epsilon. If it does not, there is nothing
    of the batch.

        next_mean = running_mean * (1 - m) + mean * m
        next_var  = running_var * (1 - m) + var * m * n / (n - 1)

    `mean` and `var`, which is biased, are those of the batch's `n` elements in a channel.
    """
    training, momentum, eps = settings
    if not training:
        shown = settled_batch_norm(x, weight, bias, running_mean, running_var, momentum, eps)
        return *shown, op.Identity(running_mean), op.Identity(running_var)
    y, mean, var = _normalized(x, (weight, bias, running_mean, running_var), eps)
    count = math.prod(size for axis, size in enumerate(sizes(x)) if axis != 1)
    unbiased = momentum * count / (count - 1)
    next_mean = op.Add(op.Mul(running_mean, 1.0 - momentum), op.Mul(mean, momentum))
    next_var = op.Add(op.Mul(running_var, 1.0 - momentum), op.Mul(var, unbiased))
    inverse = op.Reciprocal(op.Sqrt(op.Add(stop(var), eps)))
    return y, stop(mean), inverse, next_mean, next_var


def settled_batch_norm(
    x: ir.Value, *parameters: ir.Value | float | None
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """BatchNorm by the running statistics; nothing is there of the batch, in two results."""
    assert x.dtype is not None
    nothing = constant(np.zeros(0, x.dtype.numpy()))
    return aten_settled(x, *parameters)[0], nothing, nothing


def _normalized(
    x: ir.Value, parameters: tuple[ir.Value | None, ...], eps: float
) -> tuple[ir.Value, ...]:
    """Return the result, and mean and biased variance of the batch.

    With a momentum of 0 the next statistics of the operator are those of the batch. onnxruntime
    writes them over the ones it is given, whoever else reads these, so it gets values of its own.
    `parameters` are scale, shift (1 and 0 where they are None), running mean and variance.
    """
    assert x.dtype is not None
    weight, bias, *statistics = parameters
    affine = [
        constant(np.full(sizes(x)[1], default, x.dtype.numpy())) if value is None else value
        for value, default in ((weight, 1), (bias, 0))
    ]
    own = [op.Neg(value) for value in statistics]
    return several.BatchNormalization(x, *affine, *own, training_mode=1, momentum=0.0, epsilon=eps)


def by_channel(translate: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Return `translate`, of a norm with numbers [C] for channels, for empty inputs too."""
    return _unless_empty(translate, lambda x, value: _spread(value, rank(x) - 2))


def by_element(translate: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Return `translate`, of a norm with numbers for the last axes, for empty inputs too."""
    return _unless_empty(translate, lambda x, value: value)


def _unless_empty(
    translate: Callable[..., ir.Value], placed: Callable[[ir.Value, ir.Value], ir.Value]
) -> Callable[..., ir.Value]:
    """Return `translate`, but for empty inputs the affine part, whose parameters get zeros."""

    def call(x: ir.Value, *rest: object, **settings: object) -> ir.Value:
        if x.shape is None or 0 not in x.shape.dims:
            return translate(x, *rest, **settings)
        given = [value for value in (*rest, *settings.values()) if isinstance(value, ir.Value)]
        result = op.Identity(x)
        for operator, value in zip((op.Mul, op.Add), given, strict=False):
            result = operator(result, placed(x, value))
        return result

    return call


def _spread(value: ir.Value, after: int) -> ir.Value:
    """Return `value` [C] with `after` axes of size 1 behind it."""
    return op.Unsqueeze(value, list(range(1, after + 1))) if after else value
