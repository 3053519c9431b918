"""Convolutions and pools over one and over three dimensions."""

from __future__ import annotations

import torch
from torch.nn import functional

from .apply import operator
from .images import flat
from .windows import Padding, Sizes, both_sides, margins, sizes


@operator
def Conv3d(
    activations: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> torch.Tensor:
    """Return the convolution of volumes (N, C, D, H, W) with `weights` (out, C / groups, d, h, w).

    `padding`: a number, (depth, height, width), (left, right, top, bottom, front, back), or `same`:
    half of the window, one less behind where its size is even.
    """
    sides = margins("Conv3d", padding, weights.shape[-3:], even=True)
    wider = functional.pad(activations, sides) if any(sides) else activations
    return functional.conv3d(
        wider, weights, flat(bias), sizes(stride, 3), 0, sizes(dilation, 3), groups
    )


@operator
def MaxPool3d(
    activations: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:
    """Return the largest element of each window of volumes (N, C, D, H, W)."""
    window = sizes(kernel_size, 3)
    sides = both_sides("MaxPool3d", padding, window)
    return functional.max_pool3d(
        activations, window, sizes(stride, 3), sides, sizes(dilation, 3), ceil_mode
    )


@operator
def MaxPool1d(
    activations: torch.Tensor,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> torch.Tensor:
    """Return the largest element of each window of rows (N, C, W)."""
    return functional.max_pool1d(activations, kernel_size, stride, padding, dilation)


@operator
def AvgPool1d(
    activations: torch.Tensor,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    """Return the mean of each window of rows (N, C, W); padding `same` is half of the window."""
    (margin,) = both_sides("AvgPool1d", padding, (kernel_size,))
    return functional.avg_pool1d(
        activations, kernel_size, stride, margin, ceil_mode, count_include_pad
    )
