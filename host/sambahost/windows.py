"""Windows that move over images: what their sizes and paddings mean, and convolutions by them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

from torch import Tensor
from torch.nn import functional

from .errors import HostError

Sizes: TypeAlias = int | Sequence[int]
"""A number for all dimensions, or one for each: (height, width), (depth, height, width)."""
Padding: TypeAlias = str | Sizes
"""A number, one for each dimension, or two for each from the last on: (left, right, top, ...).

`same` is half of the window; convolutions leave one less behind windows of an even size.
"""


def sizes(size: Sizes, count: int) -> tuple[int, ...]:
    """Return a number for each of `count` dimensions. Raises `HostError` for others."""
    found = (size,) * count if isinstance(size, int) else tuple(size)
    if len(found) != count:
        raise HostError(f"{len(found)} sizes came; 1 or {count} were expected")
    return found


def margins(
    kind: str, padding: Padding, window: Sequence[int], *, even: bool = False
) -> tuple[int, ...]:
    """Return what `torch.nn.functional.pad` takes: (left, right, top, bottom, ...).

    `kind` is the operator, `even` says that it leaves one less behind windows of an even size.
    Raises `HostError` for what is no padding of a window of so many dimensions.
    """
    count = len(window)
    if isinstance(padding, str):
        if padding != "same":
            many = f"{count} or {2 * count} numbers" if count > 1 else "2 numbers"
            raise HostError(f"{kind}: '{padding}' is no padding; 'same', a number, {many} are")
        pairs = [(n // 2, n // 2 - int(even and n % 2 == 0)) for n in window]
    elif isinstance(padding, int) or len(padding) == count:
        pairs = [(n, n) for n in sizes(padding, count)]
    elif len(padding) == 2 * count:
        return tuple(padding)
    else:
        raise HostError(
            f"{kind}: {len(padding)} numbers of padding came; {count} or {2 * count} were expected"
        )
    return tuple(chain.from_iterable(reversed(pairs)))


def both_sides(kind: str, padding: Padding, window: Sequence[int]) -> tuple[int, ...]:
    """Return a margin for each dimension. Raises `HostError` if its two sides differ."""
    found = margins(kind, padding, window)
    if found[::2] != found[1::2]:
        raise HostError(f"{kind}: padding {padding} differs from side to side")
    return found[::2][::-1]


def convolved(
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
        x, weights, flat(bias), sizes(stride, count), inner, sizes(dilation, count), groups
    )


def flat(bias: Tensor | None) -> Tensor | None:
    """Return a bias, which may have dimensions of size 1 beside its own, as a vector."""
    return None if bias is None else bias.reshape(-1)


def channels_first(images: Tensor, channel_last: bool) -> Tensor:
    """Return images with their channels first, wherever they came."""
    return images.movedim(-1, -3) if channel_last else images


def as_came(images: Tensor, channel_last: bool) -> Tensor:
    """Return images, whose channels are first, as they came."""
    return images.movedim(-3, -1) if channel_last else images
