"""Operators as formulas that can be differentiated any number of times.

PyTorch differentiates a normalisation by an operator of its own, which reads the mean that the
forward pass has kept, and knows nothing of how this depends on the input. Written out, all that a
derivative reads is a function of the inputs that can be differentiated in its turn. `FORWARD` has
the formulas of operators, `BACKWARD` those of their derivatives that PyTorch leaves whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from sambac.errors import CompileError
from sambac.frontend.torch.own_operators import INCOMING, VARIABLE

from .normalisations import NORMALISATIONS, scaled

_aten = torch.ops.aten

_MEAN = 1
"""How PyTorch numbers the mean among the ways to reduce a loss."""

_Formulas = Mapping[Any, Callable[..., Any]]


def _no_gradient(y: Tensor, number: int) -> Tensor:
    """What stands for a gradient that is to come."""
    return torch.zeros_like(y)


def _unchecked(*_: object, **__: object) -> None:
    """What has been checked once."""


def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return scaled(torch.einsum("...i,oij,...j->...o", x, weight, y), None, bias)


def _copied(x: Tensor, values: Tensor, non_blocking: bool = False) -> Tensor:
    """What is written into all of `x`."""
    return values.to(x.dtype).expand(x.shape)


def _made(shape: Sequence[int], *order: object, **kind: Any) -> Tensor:
    """Something of a shape, of which nobody reads more."""
    return torch.zeros(shape, dtype=kind.get("dtype"))


def _dropping(what: str) -> CompileError:
    return CompileError(
        f"forward takes the derivative of {what} with dropout, whose masks no recording has; let "
        "it have none, or write it with dropouts of its own"
    )


def _recurrent(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyTorch's formula of a recurrent layer, which forgets dropout between layers."""

    def run(x: Tensor, states: Any, weights: Any, *settings: Any) -> Any:
        _, _, dropout, train, *_ = settings
        if dropout and train:
            raise _dropping("a recurrent layer")
        return formula(x, states, weights, *settings)

    return run


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
) -> Tensor:
    if dropout_p:
        raise _dropping("attention")
    math = _aten._scaled_dot_product_attention_math
    settings = {"scale": scale, "enable_gqa": enable_gqa}
    result: Tensor = math(query, key, value, attn_mask, 0.0, is_causal, **settings)[0]
    return result


def _distances(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    apart: Tensor = torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, dim=-1)
    return apart


def _average_pool(
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Tensor:
    """The means of windows, of as many axes as `size` has."""
    if ceil_mode:
        raise CompileError(
            "forward takes the derivative of an average pooling with ceil_mode, which cannot be "
            "recorded; pad what it pools instead"
        )
    axes = len(size)

    def summed(values: Tensor) -> Tensor:
        maps = values.reshape(-1, 1, *values.shape[-axes:])
        ones, steps = values.new_ones(1, 1, *size), stride or size
        each = [*padding] * (axes if len(padding) == 1 else 1)
        found = _convolved(maps, ones, (steps, each, [1] * axes, False, [0] * axes, 1))
        return found.reshape(*values.shape[:-axes], *found.shape[-axes:])

    if divisor is None and not count_include_pad:
        return summed(x) / summed(torch.ones_like(x))
    return summed(x) / (prod(size) if divisor is None else divisor)


def _adaptive_pool(x: Tensor, size: Sequence[int]) -> Tensor:
    """The means of `size` windows along each of the last axes, which may overlap."""
    for axis, count in enumerate(size, -len(size)):
        length = x.shape[axis]
        bounds = [(at * length // count, -(-(at + 1) * length // count)) for at in range(count)]
        means = [
            x.narrow(axis, begin, end - begin).mean(axis, keepdim=True) for begin, end in bounds
        ]
        x = torch.cat(means, axis)
    return x


def _replicated(x: Tensor, padding: Sequence[int]) -> Tensor:
    """The first and the last of the last axes repeated, as `F.pad` says how often."""
    for at, axis in enumerate(range(-1, -1 - len(padding) // 2, -1)):
        before, after = padding[2 * at : 2 * at + 2]
        places = torch.arange(-before, x.shape[axis] + after).clamp(0, x.shape[axis] - 1)
        x = x.index_select(axis, places)
    return x


def _pad(x: Tensor, padding: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    if mode == "replicate":
        return _replicated(x, padding)
    padded: Tensor = _aten.pad.default(x, padding, mode, value)
    return padded


_RECURRENT = (_aten.lstm.input, _aten.gru.input, _aten.rnn_tanh.input, _aten.rnn_relu.input)

_KNOWN = frozenset({
    *(_aten.grid_sampler_2d, _aten.upsample_nearest1d, _aten.upsample_nearest2d),
    *(_aten.upsample_nearest3d, _aten._upsample_nearest_exact1d, _aten._upsample_nearest_exact2d),
    *(_aten._upsample_nearest_exact3d, _aten.upsample_linear1d, _aten.upsample_bilinear2d),
    *(_aten.upsample_trilinear3d, _aten.upsample_bicubic2d, _aten._upsample_bilinear2d_aa),
    *(_aten._upsample_bicubic2d_aa, _aten.adaptive_max_pool2d, _aten.adaptive_max_pool3d),
})  # fmt: skip
"""Operators of which PyTorch has such formulas itself."""

FORWARD: _Formulas = MappingProxyType({
    VARIABLE: torch.clone,
    _aten._assert_tensor_metadata.default: _unchecked,
    INCOMING: _no_gradient,
    **{op: _recurrent(decomposition_table[op]) for op in _RECURRENT},
    **{
        op: decomposition_table[op]
        for packet in _KNOWN
        for op in map(partial(getattr, packet), packet._overload_names)
        if op in decomposition_table
    },
    **NORMALISATIONS,
    _aten.copy.default: _copied,
    _aten.bilinear.default: _bilinear,
    _aten.scaled_dot_product_attention.default: _attention,
    _aten.cdist.default: _distances,
    _aten.adaptive_avg_pool1d.default: _adaptive_pool,
    _aten.adaptive_avg_pool2d.default: _adaptive_pool,
    _aten.adaptive_avg_pool3d.default: _adaptive_pool,
    _aten.pad.default: _pad,
    _aten.replication_pad1d.default: _replicated,
    _aten.replication_pad2d.default: _replicated,
    _aten.replication_pad3d.default: _replicated,
    _aten.avg_pool1d.default: _average_pool,
    _aten.avg_pool2d.default: _average_pool,
    _aten.avg_pool3d.default: _average_pool,
})  # fmt: skip


def _convolution_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, *settings: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of a convolution, by convolutions (torch.nn.grad has those of plain ones)."""
    stride, padding, dilation, transposed, _, groups, wanted = settings
    spatial = range(2, x.dim())
    of_x = of_weight = of_bias = None
    if wanted[0]:
        of_x = _read(gradient, x, weight, settings)
    if wanted[1]:
        inner, outer = (gradient, x) if transposed else (x, gradient)
        of_weight = _filters(inner, outer, weight, (stride, padding, dilation), groups)
    if wanted[2]:
        of_bias = gradient.sum([0, *spatial])
    return of_x, of_weight, of_bias


def _read(gradient: Tensor, x: Tensor, weight: Tensor, settings: Sequence[Any]) -> Tensor:
    """The gradient of what is read: a transposed convolution, of what lies at the places of `x`.

    How much there is behind is a setting of it, which no size that stays open can be.
    """
    stride, padding, dilation, transposed, _, groups, _ = settings
    more: list[int | None] = [0] * len(stride)
    if not transposed:
        reached = [
            (gradient.shape[2 + at] - 1) * stride[at]
            - 2 * padding[at]
            + dilation[at] * (weight.shape[2 + at] - 1)
            + 1
            for at in range(len(stride))
        ]
        more = [known_size(x.shape[2 + at] - reached[at]) for at in range(len(stride))]
    if None in more:
        raise CompileError(
            "forward takes the derivative of a convolution or an average pooling with strides "
            "along axes of open sizes, which cannot be recorded; give these axes fixed sizes"
        )
    return _convolved(gradient, weight, (stride, padding, dilation, not transposed, more, groups))


def known_size(size: int | torch.SymInt) -> int | None:
    """Return a size, if it does not depend on those that stay open."""
    known: int | None = size if isinstance(size, int) else size.node.maybe_as_int()
    return known


def _convolved(x: Tensor, weight: Tensor, settings: Sequence[Any]) -> Tensor:
    found: Tensor = _aten.convolution(x, weight, None, *settings)
    return found


def _filters(
    inner: Tensor,
    outer: Tensor,
    weight: Tensor,
    settings: tuple[Sequence[int], Sequence[int], Sequence[int]],
    groups: int,
) -> Tensor:
    """The gradient of filters between `inner` [N, G*C, ...] and `outer` [N, M, ...]: [M, C, ...].

    A convolution of what is read, whose filters are the gradients, each group on its own channels.
    """
    stride, padding, dilation = settings
    parts = inner.reshape(inner.shape[0], groups, -1, *inner.shape[2:])
    read = parts.transpose(0, 2).flatten(1, 2)  # [C, G*N, ...]
    slid = outer.transpose(0, 1)  # [M, N, ...]
    none = [0] * len(stride)
    found: Tensor = _aten.convolution(
        read, slid, None, dilation, padding, stride, False, none, groups
    )
    for axis, length in enumerate(weight.shape[2:], 2):  # what no stride reached
        found = found.narrow(axis, 0, length)
    return found.transpose(0, 1)


def _softplus_backward(gradient: Tensor, x: Tensor, beta: float, threshold: float) -> Tensor:
    """PyTorch's formula has exp(beta * x), which is infinite where the other branch counts."""
    return torch.where(x * beta > threshold, gradient, gradient * (x * beta).sigmoid())


def _elu_backward(gradient: Tensor, alpha: float, scale: float, *settings: Any) -> Tensor:
    """The same of exp(x), or of what is computed of it."""
    input_scale, is_result, x = settings
    below = torch.where(x < 0, x, 0)
    slope = below + alpha * scale if is_result else alpha * scale * (below * input_scale).exp()
    return gradient * torch.where(x <= 0, input_scale * slope, scale)


def _log_sigmoid_backward(gradient: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """PyTorch's formula has |x|, which has no slope at 0."""
    return gradient * (-x).sigmoid()


def _huber_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float
) -> Tensor:
    """The difference within `delta`, which excludes it as PyTorch's next derivative does."""
    apart = x - target
    count = x.numel() if reduction == _MEAN else 1
    return gradient * torch.where(apart.abs() < delta, apart, delta * apart.sign()) / count


def _logit_backward(gradient: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """PyTorch's formula divides by 0 at what it leaves out."""
    if eps is None:
        inside = (x >= 0) & (x <= 1)
        return gradient * torch.where(inside, 1 / (x * (1 - x)), torch.nan)
    inside = (x >= eps) & (x <= 1 - eps)
    kept = torch.where(inside, x, 0.5)
    return torch.where(inside, gradient / (kept * (1 - kept)), 0)


def _largest_backward(gradient: Tensor, x: Tensor, size: Sequence[int], *settings: Any) -> Tensor:
    """The gradients of a pooling added up where the largest were."""
    axes, indices = len(size), settings[-1]
    flat = torch.zeros_like(x).flatten(-axes)
    summed = flat.scatter_add(-1, indices.flatten(-axes), gradient.flatten(-axes))
    return summed.reshape(x.shape)


BACKWARD: _Formulas = MappingProxyType({
    _aten.detach.default: _aten.alias.default,  # what PyTorch keeps is no end of gradients
    _aten.empty.memory_format: _made,
    _aten.empty_permuted.default: _made,
    _aten.convolution_backward.default: _convolution_backward,
    _aten.softplus_backward.default: _softplus_backward,
    _aten.elu_backward.default: _elu_backward,
    _aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    _aten.huber_loss_backward.default: _huber_backward,
    _aten.logit_backward.default: _logit_backward,
    _aten.max_pool2d_with_indices_backward.default: _largest_backward,
    _aten.max_pool3d_with_indices_backward.default: _largest_backward,
})  # fmt: skip
