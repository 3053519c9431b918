"""Common divisors of whole numbers, by as many steps of Euclid's as the type can take.

The most steps take two Fibonacci numbers that are next to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

_aten = torch.ops.aten


def _steps(dtype: torch.dtype) -> int:
    """Return how many steps any two numbers of a type take at most."""
    small, large, count = 1, 1, 1
    while large <= torch.iinfo(dtype).max:
        small, large, count = large, small + large, count + 1
    return count


def _common(a: Tensor, b: Tensor) -> Tensor:
    dtype = torch.promote_types(a.dtype, b.dtype)
    a, b = a.abs().to(dtype), b.abs().to(dtype)
    for _ in range(_steps(dtype)):
        over = b == 0
        a, b = torch.where(over, a, b), a % (b + over.to(dtype))
    return a


def _multiple(a: Tensor, b: Tensor) -> Tensor:
    common = _common(a, b)
    share = a // (common + (common == 0).to(common.dtype))
    wide = torch.promote_types(common.dtype, torch.int32)  # in which C computes
    return (share.to(wide) * b.to(wide)).abs().to(common.dtype)


DIVISORS: Mapping[Callable[..., object], Callable[..., Tensor]] = {
    _aten.gcd.default: _common,
    _aten.lcm.default: _multiple,
}
"""What these operators become."""
