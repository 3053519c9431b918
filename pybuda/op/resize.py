"""Images and volumes in other sizes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from pybuda.errors import PyBudaError

from .apply import operator

_NEAREST = "nearest_neighbor"
_LINEAR = ("linear", "bilinear")


@operator
def Resize2d(
    operandA: Tensor,
    sizes: Sequence[int],
    method: str = _NEAREST,
    align_corners: bool = False,
    channel_last: bool = False,
) -> Tensor:
    """Return images (N, C, H, W) with `sizes`, (height, width).

    Methods are `nearest_neighbor`, `linear` and `bilinear`, which are the same. Raises
    `PyBudaError` unless both sizes grow, or both shrink, by one whole factor.
    """
    if method != _NEAREST and method not in _LINEAR:
        raise PyBudaError(f"Resize2d: '{method}' is no method; nearest_neighbor and bilinear are")
    images = operandA.movedim(-1, -3) if channel_last else operandA
    _require_one_factor("Resize2d", images.shape[-2:], sizes)
    if method == _NEAREST:
        found = functional.interpolate(images, tuple(sizes), mode="nearest")
    else:
        found = functional.interpolate(
            images, tuple(sizes), mode="bilinear", align_corners=align_corners
        )
    return found.movedim(-3, -1) if channel_last else found


@operator
def Resize3d(operandA: Tensor, sizes: Sequence[int], method: str = _NEAREST) -> Tensor:
    """Return volumes (N, C, D, H, W) with `sizes`, (depth, height, width), of nearest elements."""
    if method != _NEAREST:
        raise PyBudaError(f"Resize3d: '{method}' is no method; nearest_neighbor is")
    _require_one_factor("Resize3d", operandA.shape[-3:], sizes)
    return functional.interpolate(operandA, tuple(sizes), mode="nearest")


def _require_one_factor(kind: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Raise `PyBudaError` unless sizes grow, or shrink, by one whole factor."""
    if len(before) != len(after):
        raise PyBudaError(f"{kind}: {len(after)} sizes came; {len(before)} were expected")
    pairs = [*zip(before, after, strict=True)]
    grown = {new // old if old and new % old == 0 else 0 for old, new in pairs}
    shrunk = {old // new if new and old % new == 0 else 0 for old, new in pairs}
    if not any(len(factors) == 1 and 0 not in factors for factors in (grown, shrunk)):
        raise PyBudaError(
            f"{kind}: from {[*before]} to {[*after]} is not by one whole factor in all dimensions"
        )
