"""The next number that a floating-point type has, by arithmetic that rounds to the nearest.

    nextafter(x, y)  ->  x + p * |x|, or x - p * |x|,  p a bit more than half of the last digit

after Rump, Zimmermann, Boldo and Melquiond, "Computing predecessor and successor in rounding to
nearest" (2009). Where p * |x| would lose digits, x is scaled by a power of two; where numbers are
equally far from each other, as those next to 0 are, that distance is added. ONNX has no operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """Return the number next to each of `x` towards `y`, which has no gradient, as in PyTorch."""
    x, y = torch.broadcast_tensors(x.detach(), y.detach())  # type: ignore[no-untyped-call]  # torch's
    if x.dtype not in (torch.float32, torch.float64):
        raise NotImplementedError(
            f"nextafter of {x.dtype} has no formula here, as 16 bits are computed in more; give "
            "float32"
        )
    kind = torch.finfo(x.dtype)
    half = kind.eps / 2
    part = half * (1 + 2 * half)
    size, scaled = x.abs(), x / half
    sign = torch.where(y > x, 1.0, -1.0).to(x.dtype)
    near_zero = x + sign * (kind.smallest_normal * kind.eps)
    small = (scaled + sign * (part * scaled.abs())) * half
    found = torch.where(
        size < 2 * kind.smallest_normal,
        near_zero,
        torch.where(size * half < kind.smallest_normal, small, x + sign * (part * size)),
    )
    found = torch.where(x.isinf(), torch.clamp(x, kind.min, kind.max), found)
    return torch.where(x == y, y, torch.where(x.isnan() | y.isnan(), x + y, found))


NEIGHBOURS: Mapping[Callable[..., object], Callable[..., object]] = MappingProxyType(
    {torch.ops.aten.nextafter.default: nextafter}
)
