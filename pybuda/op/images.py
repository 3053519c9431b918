"""Convolutions and pools of images."""

from __future__ import annotations

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError

from .apply import operator
from .windows import Padding, Sizes, both_sides, margins, sizes


@operator
def Conv2d(
    activations: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> torch.Tensor:
    """Return the convolution of images (N, C, H, W) with `weights` (out, C / groups, h, w).

    `padding`: a number, (height, width), (left, right, top, bottom), or `same`: half of the window,
    one less to the right and below where its size is even.
    """
    x = _channels_first(activations, channel_last)
    left, right, top, bottom = margins("Conv2d", padding, weights.shape[-2:], even=True)
    inner = (top, left)
    if (left, top) != (right, bottom):
        x, inner = functional.pad(x, (left, right, top, bottom)), (0, 0)
    found = functional.conv2d(
        x, weights, flat(bias), sizes(stride, 2), inner, sizes(dilation, 2), groups
    )
    return _as_came(found, channel_last)


@operator
def Conv2dTranspose(
    activations: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> torch.Tensor:
    """Return the transposed convolution of images with `weights` (C, out / groups, h, w)."""
    found = functional.conv_transpose2d(
        _channels_first(activations, channel_last),
        weights,
        flat(bias),
        sizes(stride, 2),
        both_sides("Conv2dTranspose", padding, weights.shape[-2:]),
        0,
        groups,
        sizes(dilation, 2),
    )
    return _as_came(found, channel_last)


@operator
def MaxPool2d(
    activations: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    max_pool_add_sub_surround: bool = False,
    max_pool_add_sub_surround_value: float = 1.0,
    channel_last: bool = False,
) -> torch.Tensor:
    """Return the largest element of each window of images (N, C, H, W); margins never are it.

    `max_pool_add_sub_surround` adds a number before and subtracts it behind, which hardware needs
    where margins are zeros: it has nothing to do here. There are no indices to return.
    """
    if return_indices:
        raise PyBudaError("MaxPool2d: return_indices came; an operator has one result")
    x, window = _channels_first(activations, channel_last), sizes(kernel_size, 2)
    sides = both_sides("MaxPool2d", padding, window)
    found = functional.max_pool2d(x, window, sizes(stride, 2), sides, sizes(dilation, 2), ceil_mode)
    return _as_came(found, channel_last)


@operator
def AvgPool2d(
    activations: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    channel_last: bool = False,
) -> torch.Tensor:
    """Return the mean of each window of images (N, C, H, W)."""
    x, window = _channels_first(activations, channel_last), sizes(kernel_size, 2)
    sides = both_sides("AvgPool2d", padding, window)
    means = (ceil_mode, count_include_pad, divisor_override)
    return _as_came(functional.avg_pool2d(x, window, sizes(stride, 2), sides, *means), channel_last)


def flat(bias: torch.Tensor | None) -> torch.Tensor | None:
    """Return a bias, which may have dimensions of size 1 beside its own, as a vector."""
    return None if bias is None else bias.reshape(-1)


def _channels_first(images: torch.Tensor, channel_last: bool) -> torch.Tensor:
    return images.movedim(-1, -3) if channel_last else images


def _as_came(images: torch.Tensor, channel_last: bool) -> torch.Tensor:
    return images.movedim(-3, -1) if channel_last else images
