"""Operators that move elements without computing: the original's tensor manipulations.

Tensors are (..., Z, R, C): depth, rows and columns are their last three dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError

from .apply import operator

_MODES = ("constant", "replicate", "reflect")
_TILE = 32
"""Rows and columns of a tile of the device."""


@operator
def Transpose(
    operandA: torch.Tensor, dim0: int, dim1: int, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return the tensor with two dimensions exchanged, in its own type or in `out_dtype`."""
    moved = torch.transpose(operandA, dim0, dim1)
    return moved if out_dtype is None else moved.to(out_dtype)


@operator
def Reshape(operandA: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return the elements, in order, in another shape; one size may be -1."""
    return torch.reshape(operandA, tuple(shape))


@operator
def Unsqueeze(operandA: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the tensor with a dimension of size 1 more, at `dim`."""
    return torch.unsqueeze(operandA, dim)


@operator
def Squeeze(operandA: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the tensor without the dimension `dim`, whose size is 1."""
    _require_size("Squeeze", operandA, dim, 1)
    return torch.squeeze(operandA, dim)


@operator
def HSlice(operandA: torch.Tensor, slices: int) -> torch.Tensor:
    """Cut the columns into `slices`: (..., Z, R, C) becomes (..., Z * slices, R, C / slices)."""
    *outer, z, r, c = _layers(operandA)
    _require_divides("HSlice", slices, c, "columns")
    parts = operandA.reshape(*outer, z, r, slices, c // slices).transpose(-3, -2)
    return parts.reshape(*outer, z * slices, r, c // slices)


@operator
def VSlice(operandA: torch.Tensor, slices: int) -> torch.Tensor:
    """Cut the rows into `slices`: (..., Z, R, C) becomes (..., Z * slices, R / slices, C)."""
    *outer, z, r, c = _layers(operandA)
    _require_divides("VSlice", slices, r, "rows")
    return operandA.reshape(*outer, z * slices, r // slices, c)


@operator
def HStack(operandA: torch.Tensor, slices: int = -1) -> torch.Tensor:
    """Undo `HSlice`; without `slices` all of Z is put side by side."""
    *outer, z, r, c = _layers(operandA)
    count = z if slices == -1 else slices
    _require_divides("HStack", count, z, "slices of Z")
    parts = operandA.reshape(*outer, z // count, count, r, c).transpose(-3, -2)
    return parts.reshape(*outer, z // count, r, count * c)


@operator
def VStack(operandA: torch.Tensor, slices: int = -1) -> torch.Tensor:
    """Undo `VSlice`; without `slices` all of Z is put one below the other."""
    *outer, z, r, c = _layers(operandA)
    count = z if slices == -1 else slices
    _require_divides("VStack", count, z, "slices of Z")
    return operandA.reshape(*outer, z // count, count * r, c)


@operator
def Index(
    operandA: torch.Tensor, dim: int, start: int, stop: int | None = None, stride: int = 1
) -> torch.Tensor:
    """Return the elements from `start` up to `stop`, which is the next one if left out.

    Negative positions count from the end. Raises `PyBudaError` if there are none.
    """
    size = operandA.shape[dim]
    first = start + size if start < 0 else start
    end = first + 1 if stop is None else stop + size if stop < 0 else stop
    if stride <= 0 or not 0 <= first < end <= size:
        raise PyBudaError(
            f"Index: [{start}:{stop}:{stride}] is nothing of dimension {dim}, which has {size}"
        )
    before = (slice(None),) * (dim % operandA.ndim)
    return operandA.narrow(dim, first, end - first)[(*before, slice(None, None, stride))]


@operator
def Select(
    operandA: torch.Tensor, dim: int, index: int | tuple[int, int], stride: int = 0
) -> torch.Tensor:
    """Return (start, length) = `index` of every `stride` elements; 0 is the whole dimension.

    An integer selects one element. What lies behind the end of the tensor is 0.
    """
    start, length = (index, 1) if isinstance(index, int) else index
    size, at = operandA.shape[dim], dim % operandA.ndim
    step = stride or size
    if start < 0 or length < 1 or start + length > step:
        raise PyBudaError(f"Select: {length} elements from {start} on are not within each {step}")
    filled = functional.pad(operandA, (0, 0) * (operandA.ndim - 1 - at) + (0, -size % step))
    outer, inner = operandA.shape[:at], operandA.shape[at + 1 :]
    kept = filled.reshape(*outer, -1, step, *inner).narrow(at + 1, start, length)
    return kept.reshape(*outer, -1, *inner)


@operator
def Pad(
    operandA: torch.Tensor,
    pad: Sequence[int],
    mode: str = "constant",
    channel_last: bool = False,
) -> torch.Tensor:
    """Return the tensor with `pad` = (left, right) or (left, right, top, bottom) elements more.

    They are 0, those at the border, or mirrored ones: mode constant, replicate or reflect.
    """
    if mode not in _MODES:
        raise PyBudaError(f"Pad: '{mode}' is no mode; there are {', '.join(_MODES)}")
    if len(pad) not in (2, 4):
        raise PyBudaError(f"Pad: {len(pad)} sizes came; 2 (left, right) or 4 were expected")
    images = operandA.movedim(-1, -3) if channel_last else operandA
    wider = functional.pad(images, tuple(pad), mode=mode)
    return wider.movedim(-3, -1) if channel_last else wider


@operator
def Concatenate(*operands: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the tensors one after the other along `axis`."""
    return torch.cat(operands, axis)


@operator
def Stack(*operands: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the tensors one after the other along a new dimension `axis`."""
    return torch.stack(operands, axis)


@operator
def Interleave(*operands: torch.Tensor, axis: int, stride: int) -> torch.Tensor:
    """Return the tensors along `axis`, `stride` elements of each in turn."""
    place = axis % operands[0].ndim
    outer, inner = operands[0].shape[:place], operands[0].shape[place + 1 :]
    parts = [each.reshape(*outer, -1, stride, *inner) for each in operands]
    return torch.stack(parts, place + 1).reshape(*outer, -1, *inner)


@operator
def Repeat(operandA: torch.Tensor, factors: Sequence[int]) -> torch.Tensor:
    """Return the tensor `factors` times along each of its dimensions."""
    return operandA.repeat(*factors)


@operator
def Broadcast(operandA: torch.Tensor, dim: int, shape: int) -> torch.Tensor:
    """Return the tensor with `shape` copies along `dim`, whose size is 1."""
    sizes = [*operandA.shape]
    sizes[dim] = shape
    return operandA.expand(sizes)


@operator
def Narrow(
    operandA: torch.Tensor, dim: int, start: int, length: int, original_length: int
) -> torch.Tensor:
    """Return `length` elements of `dim` from `start` on; `original_length` is its whole size.

    The original takes that size and does not look at it; a wrong one is told.
    """
    _require_size("Narrow", operandA, dim, original_length)
    return torch.narrow(operandA, dim, start, length)


@operator
def PadTile(operandA: torch.Tensor, dim: int, original_length: int) -> torch.Tensor:
    """Return the tensor with zeros behind the rows or the columns, up to whole tiles of 32."""
    _require_size("PadTile", operandA, dim, original_length)
    at = dim % operandA.ndim - operandA.ndim
    if at not in (-1, -2):
        raise PyBudaError(f"PadTile: dimension {dim} came; the last two have tiles")
    more = -operandA.shape[dim] % _TILE
    return functional.pad(operandA, (0, more) if at == -1 else (0, 0, 0, more))


@operator
def BudaPad(operandA: torch.Tensor, paddings: tuple[int, int], value: float) -> torch.Tensor:
    """Return the tensor with (rows, columns) of tiles more, which hold `value`.

    Before them zeros fill the last tile of what gets more.
    """
    rows, columns = (
        -operandA.shape[at] % _TILE if n else 0 for at, n in zip((-2, -1), paddings, strict=True)
    )
    whole = functional.pad(operandA, (0, columns, 0, rows))
    return functional.pad(whole, (0, paddings[1] * _TILE, 0, paddings[0] * _TILE), value=value)


@operator
def BudaUnpad(
    operandA: torch.Tensor, original_length: tuple[int, int], paddings: tuple[int, int]
) -> torch.Tensor:
    """Return the first (rows, columns) of `original_length`, without what `BudaPad` put behind."""
    for at, size, tiles in zip((-2, -1), original_length, paddings, strict=True):
        if tiles:
            _require_size("BudaUnpad", operandA, at, size + -size % _TILE + tiles * _TILE)
    rows, columns = original_length
    return operandA[..., :rows, :columns]


@operator
def PixelShuffle(operandA: torch.Tensor, upscale_factor: int) -> torch.Tensor:
    """Return images (N, C f f, H, W) as (N, C, H f, W f), f being the factor."""
    return functional.pixel_shuffle(operandA, upscale_factor)


def _layers(x: torch.Tensor) -> tuple[int, ...]:
    """Return the shape. Raises `PyBudaError` if it has no depth, rows and columns."""
    if x.ndim < 3:
        raise PyBudaError(f"a tensor of {[*x.shape]} came; (..., depth, rows, columns) is expected")
    return tuple(x.shape)


def _require_divides(kind: str, count: int, size: int, what: str) -> None:
    """Raise `PyBudaError` unless `count` parts of `size` are equal."""
    if count < 1 or size % count:
        raise PyBudaError(f"{kind}: {size} {what} are not {count} equal parts")


def _require_size(kind: str, x: torch.Tensor, dim: int, size: int) -> None:
    if x.shape[dim] != size:
        raise PyBudaError(f"{kind}: dimension {dim} has {x.shape[dim]} elements, not {size}")
