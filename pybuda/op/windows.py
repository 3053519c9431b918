"""What sizes and paddings of windows mean, whatever the number of their dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

from pybuda.errors import PyBudaError

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
