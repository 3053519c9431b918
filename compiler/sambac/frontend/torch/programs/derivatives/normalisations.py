"""Normalisations as formulas that can be differentiated any number of times.

What they return beside their results, the mean and the deviation, is a function of the input too:
a normalisation inside of torch.vmap is an operator whose other results are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


def _standardized(x: Tensor, axes: list[int], eps: float) -> Tensor:
    """Return `x` of mean 0 and variance 1 over `axes`."""
    centered = x - x.mean(axes, keepdim=True)
    return centered.div((centered.square().mean(axes, keepdim=True) + eps).sqrt())


def _moments(x: Tensor, axes: list[int], eps: float) -> tuple[Tensor, Tensor]:
    """Return the mean of `x` over `axes`, and the inverse of its deviation."""
    mean = x.mean(axes, keepdim=True)
    return mean, ((x - mean).square().mean(axes, keepdim=True) + eps).rsqrt()


def scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return `x` times a weight plus a bias, if there are any."""
    scaled = x if weight is None else x * weight
    return scaled if bias is None else scaled + bias


def _of_channels(x: Tensor, values: Any) -> Any:
    """Return one of `values`, if there are any, for each channel, the second axis of `x`."""
    return None if values is None else values.reshape(-1, *[1] * (x.dim() - 2))


def _layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    return scaled(_standardized(x, [*range(-len(shape), 0)], eps), weight, bias)


def _batch_norm(x: Tensor, weight: Any, bias: Any, *statistics: Any) -> Tensor:
    """A normalisation whose `statistics` are a mean, a variance, training, momentum and eps."""
    mean, variance, training, _, eps, *_ = statistics
    if training or mean is None or variance is None:
        made = _standardized(x, [0, *range(2, x.dim())], eps)
    else:
        made = (x - _of_channels(x, mean)) / (_of_channels(x, variance) + eps).sqrt()
    return scaled(made, _of_channels(x, weight), _of_channels(x, bias))


def _native_batch_norm(x: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What a normalisation returns beside the mean and the inverse deviation, if it trains."""
    _, _, _, _, training, _, eps = given
    axes = [0, *range(2, x.dim())] if training else []
    mean, inverse = _moments(x, axes, eps) if training else (x.new_empty(0), x.new_empty(0))
    return _batch_norm(x, *given), mean.flatten(), inverse.flatten()


def _batch_norm_without_statistics(x: Tensor, weight: Any, bias: Any, *settings: Any) -> Any:
    return _native_batch_norm(x, weight, bias, None, None, *settings)


def _batch_norm_with_next_statistics(x: Tensor, *given: Any) -> tuple[Tensor, ...]:
    """The same, and what the statistics are next, which have no gradients."""
    _, _, mean, variance, training, momentum, _ = given
    if training:
        values = x.detach().transpose(0, 1).flatten(1)
        mean = mean + momentum * (values.mean(1) - mean)
        variance = variance + momentum * (values.var(1) - variance)
    return (*_native_batch_norm(x, *given), mean.clone(), variance.clone())


def _batch_norm_that_evaluates(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    *operands, momentum, eps = given
    return _native_batch_norm(*operands, False, momentum, eps)


def _native_layer_norm(x: Tensor, shape: Sequence[int], *given: Any) -> tuple[Tensor, ...]:
    _, _, eps = given
    return (_layer_norm(x, shape, *given), *_moments(x, [*range(-len(shape), 0)], eps))


def _native_group_norm(x: Tensor, weight: Any, bias: Any, *given: Any) -> tuple[Tensor, ...]:
    rows, _, _, groups, eps = given
    found = _moments(x.reshape(rows, groups, -1), [2], eps)
    return (_group_norm(x, groups, weight, bias, eps), *(one.squeeze(2) for one in found))


def _rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    return _native_rms_norm(x, shape, weight, eps)[0]


def _native_rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    least = torch.finfo(x.dtype).eps if eps is None else eps
    inverse = (x.square().mean([*range(-len(shape), 0)], keepdim=True) + least).rsqrt()
    return scaled(x * inverse, weight, None), inverse


def _group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    made = _standardized(x.reshape(x.shape[0], groups, -1), [2], eps).reshape(x.shape)
    return scaled(made, _of_channels(x, weight), _of_channels(x, bias))


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    axes = [axis for axis in range(v.dim()) if axis != dim] if dim != -1 else [*range(v.dim())]
    length: Tensor = torch.linalg.vector_norm(v, 2, axes, keepdim=True)
    return v * (g / length)


NORMALISATIONS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _aten.layer_norm.default: _layer_norm,
        _aten.native_layer_norm.default: _native_layer_norm,
        _aten.batch_norm.default: _batch_norm,
        _aten.native_batch_norm.default: _native_batch_norm,
        _aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
        _aten._native_batch_norm_legit_functional.default: _batch_norm_with_next_statistics,
        _aten._native_batch_norm_legit_no_training.default: _batch_norm_that_evaluates,
        _aten.rms_norm.default: _rms_norm,
        _aten._fused_rms_norm.default: _native_rms_norm,
        _aten.group_norm.default: _group_norm,
        _aten.native_group_norm.default: _native_group_norm,
        _aten._weight_norm.default: _weight_norm,
    }
)
"""The formulas of operators that normalise."""
