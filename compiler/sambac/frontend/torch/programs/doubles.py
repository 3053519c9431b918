"""Numbers in operators of float64, which ONNX keeps as attributes in float32.

    leaky_relu(x, 0.1)           ->  where(x > 0, x, x * 0.1)
    addcmul(x, y, z, value=0.1)  ->  x + y * z * 0.1
    gelu(x, "tanh")              ->  x * sigmoid(...)    one operator has float32 in its body

In float32, 0.1 is 0.1 + 1.5e-9. Operators of float64 that have such numbers become others, whose
numbers are constants in the type of the tensor beside them. Epsilons of normalisations stay: they
are added to variances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

_aten = torch.ops.aten

_ALPHA, _SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""The numbers of SELU."""


def _leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return torch.where(x > 0, x, x * negative_slope)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    # What is positive does not come to the exponential, whose gradient may be infinite there.
    below = torch.where(x > 0, 0.0, x)
    return torch.where(x > 0, x * scale, torch.expm1(below * input_scale) * (alpha * scale))


def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


def _selu(x: Tensor) -> Tensor:
    return _elu(x, _ALPHA, _SCALE)


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = x * beta
    below = torch.where(scaled > threshold, 0.0, scaled)
    return torch.where(scaled > threshold, x, torch.log1p(torch.exp(below)) / beta)


def _hardsigmoid(x: Tensor) -> Tensor:
    bounded: Tensor = _aten.hardtanh(x + 3, 0.0, 6.0)
    return bounded / 6


def _hardswish(x: Tensor) -> Tensor:
    return x * _hardsigmoid(x)


def _gelu(x: Tensor, *, approximate: str = "none") -> object:
    if approximate != "tanh":
        return NotImplemented
    inner = x + x * x * x * 0.044715
    return x * torch.sigmoid(inner * math.sqrt(8 / math.pi))  # (1 + tanh(y)) / 2 of 2 y


def _addcmul(x: Tensor, one: Tensor, other: Tensor, *, value: float = 1) -> Tensor:
    return x + one * other * value


def _addcdiv(x: Tensor, one: Tensor, other: Tensor, *, value: float = 1) -> Tensor:
    return x + one / other * value


def _added(x: Tensor, one: Tensor, other: Tensor, *, beta: float = 1, alpha: float = 1) -> object:
    if beta == 1 and alpha == 1:
        return NotImplemented
    product = torch.matmul(one, other) * alpha
    return x * beta + product if beta else product.clone()


def _arange(start: float, end: float, step: float = 1, **kwargs: object) -> object:
    given = (start, end, step)
    if not all(isinstance(one, (int, float)) for one in given):
        return NotImplemented  # open sizes
    if all(float(one).is_integer() for one in given):
        return NotImplemented
    count = math.ceil((end - start) / step)
    return torch.arange(count).to(torch.float64) * step + start


def _fill(x: Tensor, value: float) -> Tensor:
    return torch.full_like(x, value)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> object:
    if scale == 1 or query.shape[-1] == 0:
        return NotImplemented
    by = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _aten.scaled_dot_product_attention(
        query * by, key, value, attn_mask, dropout_p, is_causal, scale=1.0, enable_gqa=enable_gqa
    )


SPELLED: Mapping[torch._ops.OpOverload, Callable[..., object]] = {
    _aten.addcdiv.default: _addcdiv,
    _aten.addcmul.default: _addcmul,
    _aten.addmm.default: _added,
    _aten.arange.start: _arange,
    _aten.arange.start_step: _arange,
    _aten.baddbmm.default: _added,
    _aten.celu.default: _celu,
    _aten.elu.default: _elu,
    _aten.fill.Scalar: _fill,
    _aten.gelu.default: _gelu,
    _aten.hardsigmoid.default: _hardsigmoid,
    _aten.hardswish.default: _hardswish,
    _aten.leaky_relu.default: _leaky_relu,
    _aten.scaled_dot_product_attention.default: _attention,
    _aten.selu.default: _selu,
    _aten.softplus.default: _softplus,
}
"""What says each in other operators, of the same operands; `NotImplemented` where it is exact."""
