"""Convolutions and pools over one and over three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError
from pybuda.tensor import Tensor

from .apply import Operand, apply

Triple: TypeAlias = int | Sequence[int]


def Conv3d(
    name: str,
    activations: Operand,
    weights: Operand,
    bias: Operand | None = None,
    stride: Triple = 1,
    padding: str | Triple = "same",
    dilation: Triple = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution of volumes (N, C, D, H, W) with `weights` (out, C / groups, d, h, w).

    `padding`: a number, (depth, height, width), (left, right, top, bottom, front, back), or `same`:
    half of the window, one less behind where its size is even.
    """

    def convolved(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        margins = _margins("Conv3d", padding, w.shape[-3:], even=True)
        vector = None if b is None else b.reshape(-1)
        wider = functional.pad(x, margins) if any(margins) else x
        return functional.conv3d(wider, w, vector, _triple(stride), 0, _triple(dilation), groups)

    return apply(name, convolved, activations, weights, bias)


def MaxPool3d(
    name: str,
    activations: Operand,
    kernel_size: Triple,
    stride: Triple = 1,
    padding: str | Triple = "same",
    dilation: Triple = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the largest element of each window of volumes (N, C, D, H, W)."""

    def pooled(x: torch.Tensor) -> torch.Tensor:
        left, right, top, bottom, front, back = _margins("MaxPool3d", padding, _triple(kernel_size))
        if (left, top, front) != (right, bottom, back):
            raise PyBudaError(f"MaxPool3d: padding {padding} differs from side to side")
        return functional.max_pool3d(
            x,
            _triple(kernel_size),
            _triple(stride),
            (front, top, left),
            _triple(dilation),
            ceil_mode,
        )

    return apply(name, pooled, activations)


def MaxPool1d(
    name: str,
    activations: Operand,
    kernel_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> Tensor:
    """Return the largest element of each window of rows (N, C, W)."""

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool1d(x, kernel_size, stride, padding, dilation)

    return apply(name, pooled, activations)


def AvgPool1d(
    name: str,
    activations: Operand,
    kernel_size: int,
    stride: int = 1,
    padding: int | str = "same",
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window of rows (N, C, W); padding `same` is half of the window."""
    if isinstance(padding, str) and padding != "same":
        raise PyBudaError(f"AvgPool1d: '{padding}' is no padding; 'same' or a number is")
    margin = kernel_size // 2 if isinstance(padding, str) else padding

    def pooled(x: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool1d(x, kernel_size, stride, margin, ceil_mode, count_include_pad)

    return apply(name, pooled, activations)


def _triple(size: Triple) -> tuple[int, int, int]:
    """Return (depth, height, width)."""
    if isinstance(size, int):
        return size, size, size
    depth, height, width = size
    return depth, height, width


def _margins(
    kind: str, padding: str | Triple, window: Sequence[int], *, even: bool = False
) -> tuple[int, ...]:
    """Return (left, right, top, bottom, front, back) of an operator of this `kind`."""
    depth, height, width = window
    if padding == "same":
        sizes = (width, height, depth)
        return tuple(side for n in sizes for side in (n // 2, n // 2 - int(even and n % 2 == 0)))
    if isinstance(padding, str):
        raise PyBudaError(
            f"{kind}: '{padding}' is no padding; 'same', a number, 3 or 6 numbers are"
        )
    if isinstance(padding, int) or len(padding) == 3:
        front, top, left = _triple(padding)
        return left, left, top, top, front, front
    if len(padding) == 6:
        return tuple(padding)
    raise PyBudaError(f"{kind}: {len(padding)} numbers of padding came; 3 or 6 were expected")
