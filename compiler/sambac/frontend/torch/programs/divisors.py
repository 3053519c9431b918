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
    dtype = torch.result_type(a, b)
    return _divisor(*_wide(a, b), _steps(dtype)).to(dtype)


def _multiple(a: Tensor, b: Tensor) -> Tensor:
    dtype = torch.result_type(a, b)
    a, b = _wide(a, b)
    common = _divisor(a, b, _steps(dtype))
    share = a // (common + (common == 0).to(common.dtype))
    return (share * b).abs().to(dtype)


def _wide(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers of their common type in the one in which C computes."""
    dtype = torch.result_type(a, b)
    wide = torch.promote_types(dtype, torch.int32)
    return a.to(dtype).to(wide), b.to(dtype).to(wide)


def _divisor(a: Tensor, b: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        over = b == 0
        a, b = torch.where(over, a, b), a % (b + over.to(b.dtype))
    return a.abs()


DIVISORS: Mapping[Callable[..., object], Callable[..., Tensor]] = {
    _aten.gcd.default: _common,
    _aten.lcm.default: _multiple,
}
"""What these operators become."""
