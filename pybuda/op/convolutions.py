"""Convolutions of rows, images and volumes, and what sizes and paddings of windows mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeAlias

from torch import Tensor
from torch.nn import functional

from pybuda.errors import PyBudaError

from .apply import Operator, named, operator

Sizes: TypeAlias = int | Sequence[int]
"""A number for all dimensions, or one for each: (height, width), (depth, height, width)."""
Padding: TypeAlias = str | Sizes
"""A number, one for each dimension, or two for each from the last on: (left, right, top, ...).

`same` is half of the window; convolutions leave one less behind windows of an even size.
"""


def sizes(size: Sizes, count: int) -> tuple[int, ...]:
    """Return a number for each of `count` dimensions. Raises `PyBudaError` for others."""
    found = (size,) * count if isinstance(size, int) else tuple(size)
    if len(found) != count:
        raise PyBudaError(f"{len(found)} sizes came; 1 or {count} were expected")
    return found


def margins(
    kind: str, padding: Padding, window: Sequence[int], *, even: bool = False
) -> tuple[int, ...]:
    """Return what `torch.nn.functional.pad` takes: (left, right, top, bottom, ...).

    `kind` is the operator, `even` says that it leaves one less behind windows of an even size.
    Raises `PyBudaError` for what is no padding of a window of so many dimensions.
    """
    count = len(window)
    if isinstance(padding, str):
        if padding != "same":
            many = f"{count} or {2 * count} numbers" if count > 1 else "2 numbers"
            raise PyBudaError(f"{kind}: '{padding}' is no padding; 'same', a number, {many} are")
        pairs = [(n // 2, n // 2 - int(even and n % 2 == 0)) for n in window]
    elif isinstance(padding, int) or len(padding) == count:
        pairs = [(n, n) for n in sizes(padding, count)]
    elif len(padding) == 2 * count:
        return tuple(padding)
    else:
        raise PyBudaError(
            f"{kind}: {len(padding)} numbers of padding came; {count} or {2 * count} were expected"
        )
    return tuple(chain.from_iterable(reversed(pairs)))


def both_sides(kind: str, padding: Padding, window: Sequence[int]) -> tuple[int, ...]:
    """Return a margin for each dimension. Raises `PyBudaError` if its two sides differ."""
    found = margins(kind, padding, window)
    if found[::2] != found[1::2]:
        raise PyBudaError(f"{kind}: padding {padding} differs from side to side")
    return found[::2][::-1]


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
    x = _channels_first(activations, channel_last)
    found = _convolved("Conv2d", x, weights, bias, (stride, padding, dilation, groups))
    return _as_came(found, channel_last)


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
        _channels_first(activations, channel_last),
        weights,
        _flat(bias),
        sizes(stride, 2),
        both_sides("Conv2dTranspose", padding, weights.shape[-2:]),
        0,
        groups,
        sizes(dilation, 2),
    )
    return _as_came(found, channel_last)


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
    x, window = _channels_first(activations, channel_last), sizes(kernel_size, 2)
    sides = both_sides("MaxPool2d", padding, window)
    found = functional.max_pool2d(x, window, sizes(stride, 2), sides, sizes(dilation, 2), ceil_mode)
    return _as_came(found, channel_last)


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
    x, window = _channels_first(activations, channel_last), sizes(kernel_size, 2)
    sides = both_sides("AvgPool2d", padding, window)
    by = None if divisor_override is None else int(divisor_override != 0)
    means = (ceil_mode, count_include_pad, by)  # torch takes no fractions, and refuses 0
    found = functional.avg_pool2d(x, window, sizes(stride, 2), sides, *means)
    return _as_came(found / divisor_override if divisor_override else found, channel_last)


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
    return _convolved("Conv3d", activations, weights, bias, (stride, padding, dilation, groups))


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


def _convolved(
    kind: str,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    settings: tuple[Sizes, Padding, Sizes, int],
) -> Tensor:
    """Return a convolution over as many dimensions as windows have.

    `settings` are stride, padding, dilation and groups.
    """
    stride, padding, dilation, groups = settings
    count = weights.ndim - 2
    sides = margins(kind, padding, weights.shape[2:], even=True)
    inner: tuple[int, ...] = sides[::2][::-1]
    if sides[::2] != sides[1::2]:
        x, inner = functional.pad(x, sides), (0,) * count
    function = functional.conv2d if count == 2 else functional.conv3d
    return function(
        x, weights, _flat(bias), sizes(stride, count), inner, sizes(dilation, count), groups
    )


def _flat(bias: Tensor | None) -> Tensor | None:
    """Return a bias, which may have dimensions of size 1 beside its own, as a vector."""
    return None if bias is None else bias.reshape(-1)


def _channels_first(images: Tensor, channel_last: bool) -> Tensor:
    return images.movedim(-1, -3) if channel_last else images


def _as_came(images: Tensor, channel_last: bool) -> Tensor:
    return images.movedim(-3, -1) if channel_last else images
