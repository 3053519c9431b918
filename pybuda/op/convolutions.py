"""Convolutions and pools of rows, images and volumes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from pybuda.errors import PyBudaError
from sambahost.windows import (
    Padding,
    Sizes,
    as_came,
    both_sides,
    channels_first,
    convolved,
    flat,
    sizes,
)

from .apply import Operator, named, operator


@operator
def Conv2d(
    activations: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """Return the convolution of images (N, C, H, W) with `weights` (out, C / groups, h, w).

    `padding`: a number, (height, width), (left, right, top, bottom), or `same`: half of the window,
    one less to the right and below where its size is even.
    """
    x = channels_first(activations, channel_last)
    found = convolved("Conv2d", x, weights, bias, (stride, padding, dilation, groups))
    return as_came(found, channel_last)


@operator
def Conv2dTranspose(
    activations: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """Return the transposed convolution of images with `weights` (C, out / groups, h, w)."""
    found = functional.conv_transpose2d(
        channels_first(activations, channel_last),
        weights,
        flat(bias),
        sizes(stride, 2),
        both_sides("Conv2dTranspose", padding, weights.shape[-2:]),
        0,
        groups,
        sizes(dilation, 2),
    )
    return as_came(found, channel_last)


@operator
def MaxPool2d(
    activations: Tensor,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    max_pool_add_sub_surround: bool = False,
    max_pool_add_sub_surround_value: float = 1.0,
    channel_last: bool = False,
) -> Tensor:
    """Return the largest element of each window of images (N, C, H, W); margins never are it.

    `max_pool_add_sub_surround` adds a number before and subtracts it behind, which hardware needs
    where margins are zeros: it has nothing to do here. There are no indices to return.
    """
    if return_indices:
        raise PyBudaError("MaxPool2d: return_indices came; an operator has one result")
    x, window = channels_first(activations, channel_last), sizes(kernel_size, 2)
    sides = both_sides("MaxPool2d", padding, window)
    found = functional.max_pool2d(x, window, sizes(stride, 2), sides, sizes(dilation, 2), ceil_mode)
    return as_came(found, channel_last)


@operator
def AvgPool2d(
    activations: Tensor,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
    channel_last: bool = False,
) -> Tensor:
    """Return the mean of each window of images (N, C, H, W), or its sum by `divisor_override`."""
    x, window = channels_first(activations, channel_last), sizes(kernel_size, 2)
    sides = both_sides("AvgPool2d", padding, window)
    by = None if divisor_override is None else int(divisor_override != 0)
    means = (ceil_mode, count_include_pad, by)  # torch takes no fractions, and refuses 0
    found = functional.avg_pool2d(x, window, sizes(stride, 2), sides, *means)
    return as_came(found / divisor_override if divisor_override else found, channel_last)


@operator
def Conv3d(
    activations: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of volumes (N, C, D, H, W) with `weights` (out, C / groups, d, h, w).

    `padding`: a number, (depth, height, width), (left, right, top, bottom, front, back), or `same`:
    half of the window, one less behind where its size is even.
    """
    return convolved("Conv3d", activations, weights, bias, (stride, padding, dilation, groups))


def _largest(name: str, what: str, function: Callable[..., Tensor], same: Padding) -> Operator:
    """Return the operator that gives the largest element of each window; `same` is its padding."""

    def formula(
        activations: Tensor,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Padding = same,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        count = activations.ndim - 2
        window = sizes(kernel_size, count)
        moves = (sizes(stride, count), both_sides(name, padding, window), sizes(dilation, count))
        return function(activations, window, *moves, ceil_mode)

    return named(name, f"Return the largest element of each window of {what}.", formula)


MaxPool1d = _largest("MaxPool1d", "rows (N, C, W)", functional.max_pool1d, 0)
MaxPool3d = _largest("MaxPool3d", "volumes (N, C, D, H, W)", functional.max_pool3d, "same")


@operator
def AvgPool1d(
    activations: Tensor,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of rows (N, C, W); padding `same` is half of the window."""
    (margin,) = both_sides("AvgPool1d", padding, (kernel_size,))
    return functional.avg_pool1d(
        activations, kernel_size, stride, margin, ceil_mode, count_include_pad
    )
