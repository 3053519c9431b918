"""Convolutions and pools, and what their padding means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError
from pybuda.tensor import Tensor

from .apply import Operand, apply

Padding: TypeAlias = int | str | Sequence[int]
Pair: TypeAlias = int | Sequence[int]


def Conv2d(
    name: str,
    activations: Operand,
    weights: Operand,
    bias: Operand | None = None,
    stride: Pair = 1,
    padding: Padding = "same",
    dilation: Pair = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """Return the convolution of images (N, C, H, W) with `weights` (out, C / groups, h, w).

    `padding`: a number, (height, width), (left, right, top, bottom), or `same`: half of the window,
    one less to the right and below where its size is even.
    """

    def convolved(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        left, right, top, bottom = _margins(padding, w.shape[-2:], even=True)
        if left == right and top == bottom:
            return functional.conv2d(
                x, w, _flat(b), pair(stride), (top, left), pair(dilation), groups
            )
        wider = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(wider, w, _flat(b), pair(stride), 0, pair(dilation), groups)

    return apply(name, _on_images(convolved, channel_last), activations, weights, bias)


def Conv2dTranspose(
    name: str,
    activations: Operand,
    weights: Operand,
    bias: Operand | None = None,
    stride: Pair = 1,
    padding: Padding = "same",
    dilation: Pair = 1,
    groups: int = 1,
    channel_last: bool = False,
) -> Tensor:
    """Return the transposed convolution of images with `weights` (C, out / groups, h, w)."""

    def convolved(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        left, right, top, bottom = _margins(padding, w.shape[-2:])
        if left != right or top != bottom:
            raise PyBudaError(f"Conv2dTranspose: padding {padding} differs from side to side")
        margins = (top, left)
        return functional.conv_transpose2d(
            x, w, _flat(b), pair(stride), margins, 0, groups, pair(dilation)
        )

    return apply(name, _on_images(convolved, channel_last), activations, weights, bias)


def MaxPool2d(
    name: str,
    activations: Operand,
    kernel_size: Pair,
    stride: Pair = 1,
    padding: Padding = "same",
    dilation: Pair = 1,
    ceil_mode: bool = False,
    channel_last: bool = False,
) -> Tensor:
    """Return the largest element of each window of images (N, C, H, W); margins never are it."""

    def pooled(x: torch.Tensor) -> torch.Tensor:
        margins = _sides("MaxPool2d", padding, kernel_size)
        return functional.max_pool2d(
            x, pair(kernel_size), pair(stride), margins, pair(dilation), ceil_mode
        )

    return apply(name, _on_images(pooled, channel_last), activations)


def AvgPool2d(
    name: str,
    activations: Operand,
    kernel_size: Pair,
    stride: Pair = 1,
    padding: Padding = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    channel_last: bool = False,
) -> Tensor:
    """Return the mean of each window of images (N, C, H, W)."""

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(
            x,
            pair(kernel_size),
            pair(stride),
            _sides("AvgPool2d", padding, kernel_size),
            ceil_mode,
            count_include_pad,
            divisor_override,
        )

    return apply(name, _on_images(pooled, channel_last), activations)


def _on_images(
    function: Callable[..., torch.Tensor], channel_last: bool
) -> Callable[..., torch.Tensor]:
    """Return `function` for images whose channels are the last dimension, if they are."""
    if not channel_last:
        return function

    def moved(x: torch.Tensor, *more: torch.Tensor | None) -> torch.Tensor:
        return function(x.movedim(-1, -3), *more).movedim(-3, -1)

    return moved


def pair(size: Pair) -> tuple[int, int]:
    """Return (height, width)."""
    if isinstance(size, int):
        return size, size
    height, width = size
    return height, width


def _sides(kind: str, padding: Padding, kernel_size: Pair) -> tuple[int, int]:
    """Return the margins of a pool, (height, width)."""
    left, right, top, bottom = _margins(padding, pair(kernel_size))
    if left != right or top != bottom:
        raise PyBudaError(f"{kind}: padding {padding} differs from side to side")
    return top, left


def _margins(
    padding: Padding, window: Sequence[int], *, even: bool = False
) -> tuple[int, int, int, int]:
    """Return (left, right, top, bottom).

    `same` is half of the window; with `even` one less to the right and below of even sizes.
    """
    height, width = window
    if padding == "same":
        less = [int(even and size % 2 == 0) for size in (width, height)]
        return width // 2, width // 2 - less[0], height // 2, height // 2 - less[1]
    if isinstance(padding, str):
        raise PyBudaError(f"'{padding}' is no padding; 'same', a number, 2 or 4 numbers are")
    if isinstance(padding, int):
        return padding, padding, padding, padding
    if len(padding) == 2:
        return padding[1], padding[1], padding[0], padding[0]
    if len(padding) == 4:
        left, right, top, bottom = padding
        return left, right, top, bottom
    raise PyBudaError(f"{len(padding)} numbers of padding came; 2 or 4 were expected")


def _flat(bias: torch.Tensor | None) -> torch.Tensor | None:
    """Return a bias, which may have dimensions of size 1 beside its own, as a vector."""
    return None if bias is None else bias.reshape(-1)
