"""Operators that move elements without computing: the original's tensor manipulations.

Tensors are (..., Z, R, C): depth, rows and columns are their last three dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError
from pybuda.tensor import Tensor

from .apply import Operand, apply

_MODES = ("constant", "replicate", "reflect")
_TILE = 32
"""Rows and columns of a tile of the device."""


def Transpose(name: str, operandA: Operand, dim0: int, dim1: int) -> Tensor:
    """Return the tensor with two dimensions exchanged."""
    return apply(name, lambda x: torch.transpose(x, dim0, dim1), operandA)


def Reshape(name: str, operandA: Operand, shape: Sequence[int]) -> Tensor:
    """Return the elements, in order, in another shape; one size may be -1."""
    return apply(name, lambda x: torch.reshape(x, tuple(shape)), operandA)


def Unsqueeze(name: str, operandA: Operand, dim: int) -> Tensor:
    """Return the tensor with a dimension of size 1 more, at `dim`."""
    return apply(name, lambda x: torch.unsqueeze(x, dim), operandA)


def Squeeze(name: str, operandA: Operand, dim: int) -> Tensor:
    """Return the tensor without the dimension `dim`, whose size is 1."""

    def squeezed(x: torch.Tensor) -> torch.Tensor:
        if x.shape[dim] != 1:
            raise PyBudaError(f"Squeeze: dimension {dim} has {x.shape[dim]} elements, not 1")
        return torch.squeeze(x, dim)

    return apply(name, squeezed, operandA)


def HSlice(name: str, operandA: Operand, slices: int) -> Tensor:
    """Cut the columns into `slices`: (..., Z, R, C) becomes (..., Z * slices, R, C / slices)."""

    def sliced(x: torch.Tensor) -> torch.Tensor:
        *outer, z, r, c = _layers(x)
        _require_divides("HSlice", slices, c, "columns")
        parts = x.reshape(*outer, z, r, slices, c // slices).transpose(-3, -2)
        return parts.reshape(*outer, z * slices, r, c // slices)

    return apply(name, sliced, operandA)


def VSlice(name: str, operandA: Operand, slices: int) -> Tensor:
    """Cut the rows into `slices`: (..., Z, R, C) becomes (..., Z * slices, R / slices, C)."""

    def sliced(x: torch.Tensor) -> torch.Tensor:
        *outer, z, r, c = _layers(x)
        _require_divides("VSlice", slices, r, "rows")
        return x.reshape(*outer, z * slices, r // slices, c)

    return apply(name, sliced, operandA)


def HStack(name: str, operandA: Operand, slices: int = -1) -> Tensor:
    """Undo `HSlice`; without `slices` all of Z is put side by side."""

    def stacked(x: torch.Tensor) -> torch.Tensor:
        *outer, z, r, c = _layers(x)
        count = z if slices == -1 else slices
        _require_divides("HStack", count, z, "slices of Z")
        parts = x.reshape(*outer, z // count, count, r, c).transpose(-3, -2)
        return parts.reshape(*outer, z // count, r, count * c)

    return apply(name, stacked, operandA)


def VStack(name: str, operandA: Operand, slices: int = -1) -> Tensor:
    """Undo `VSlice`; without `slices` all of Z is put one below the other."""

    def stacked(x: torch.Tensor) -> torch.Tensor:
        *outer, z, r, c = _layers(x)
        count = z if slices == -1 else slices
        _require_divides("VStack", count, z, "slices of Z")
        return x.reshape(*outer, z // count, count * r, c)

    return apply(name, stacked, operandA)


def Index(
    name: str, operandA: Operand, dim: int, start: int, stop: int | None = None, stride: int = 1
) -> Tensor:
    """Return the elements from `start` up to `stop`, which is the next one if left out.

    Negative positions count from the end. Raises `PyBudaError` if there are none.
    """

    def indexed(x: torch.Tensor) -> torch.Tensor:
        size = x.shape[dim]
        first = start + size if start < 0 else start
        end = first + 1 if stop is None else stop + size if stop < 0 else stop
        if stride <= 0 or not 0 <= first < end <= size:
            raise PyBudaError(
                f"Index: [{start}:{stop}:{stride}] is nothing of dimension {dim}, which has {size}"
            )
        return x.narrow(dim, first, end - first)[
            (slice(None),) * (dim % x.ndim) + (slice(None, None, stride),)
        ]

    return apply(name, indexed, operandA)


def Select(
    name: str, operandA: Operand, dim: int, index: int | tuple[int, int], stride: int = 0
) -> Tensor:
    """Return (start, length) = `index` of every `stride` elements; 0 is the whole dimension.

    An integer selects one element. What lies behind the end of the tensor is 0.
    """
    start, length = (index, 1) if isinstance(index, int) else index

    def selected(x: torch.Tensor) -> torch.Tensor:
        size = x.shape[dim]
        step = stride or size
        if start < 0 or length < 1 or start + length > step:
            raise PyBudaError(
                f"Select: {length} elements from {start} on are not within each {step}"
            )
        missing = -size % step
        filled = functional.pad(x, (0, 0) * (x.ndim - 1 - dim % x.ndim) + (0, missing))
        outer, inner = x.shape[: dim % x.ndim], x.shape[dim % x.ndim + 1 :]
        periods = filled.reshape(*outer, -1, step, *inner)
        kept = periods.narrow(dim % x.ndim + 1, start, length)
        return kept.reshape(*outer, -1, *inner)

    return apply(name, selected, operandA)


def Pad(
    name: str,
    operandA: Operand,
    pad: Sequence[int],
    mode: str = "constant",
    channel_last: bool = False,
) -> Tensor:
    """Return the tensor with `pad` = (left, right) or (left, right, top, bottom) elements more.

    They are 0, those at the border, or mirrored ones: mode constant, replicate or reflect.
    """
    if mode not in _MODES:
        raise PyBudaError(f"Pad: '{mode}' is no mode; there are {', '.join(_MODES)}")
    if len(pad) not in (2, 4):
        raise PyBudaError(f"Pad: {len(pad)} sizes came; 2 (left, right) or 4 were expected")

    def padded(x: torch.Tensor) -> torch.Tensor:
        images = x.movedim(-1, -3) if channel_last else x
        wider = functional.pad(images, tuple(pad), mode=mode)
        return wider.movedim(-3, -1) if channel_last else wider

    return apply(name, padded, operandA)


def Concatenate(name: str, *operands: Operand, axis: int) -> Tensor:
    """Return the tensors one after the other along `axis`."""
    return apply(name, lambda *tensors: torch.cat(tensors, axis), *operands)


def Stack(name: str, *operands: Operand, axis: int) -> Tensor:
    """Return the tensors one after the other along a new dimension `axis`."""
    return apply(name, lambda *tensors: torch.stack(tensors, axis), *operands)


def Interleave(name: str, *operands: Operand, axis: int, stride: int) -> Tensor:
    """Return the tensors along `axis`, `stride` elements of each in turn."""

    def interleaved(*tensors: torch.Tensor) -> torch.Tensor:
        place = axis % tensors[0].ndim
        outer, inner = tensors[0].shape[:place], tensors[0].shape[place + 1 :]
        parts = [t.reshape(*outer, -1, stride, *inner) for t in tensors]
        return torch.stack(parts, place + 1).reshape(*outer, -1, *inner)

    return apply(name, interleaved, *operands)


def Repeat(name: str, operandA: Operand, factors: Sequence[int]) -> Tensor:
    """Return the tensor `factors` times along each of its dimensions."""
    return apply(name, lambda x: x.repeat(*factors), operandA)


def Broadcast(name: str, operandA: Operand, dim: int, shape: int) -> Tensor:
    """Return the tensor with `shape` copies along `dim`, whose size is 1."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        sizes = [*x.shape]
        sizes[dim] = shape
        return x.expand(sizes)

    return apply(name, copied, operandA)


def _layers(x: torch.Tensor) -> tuple[int, ...]:
    """Return the shape. Raises `PyBudaError` if it has no depth, rows and columns."""
    if x.ndim < 3:
        raise PyBudaError(f"a tensor of {[*x.shape]} came; (..., depth, rows, columns) is expected")
    return tuple(x.shape)


def _require_divides(kind: str, count: int, size: int, what: str) -> None:
    """Raise `PyBudaError` unless `count` parts of `size` are equal."""
    if count < 1 or size % count:
        raise PyBudaError(f"{kind}: {size} {what} are not {count} equal parts")


def Narrow(
    name: str, operandA: Operand, dim: int, start: int, length: int, original_length: int
) -> Tensor:
    """Return `length` elements of `dim` from `start` on; `original_length` is its whole size.

    The original takes that size and does not look at it; a wrong one is told.
    """

    def narrowed(x: torch.Tensor) -> torch.Tensor:
        _require_size("Narrow", x, dim, original_length)
        return torch.narrow(x, dim, start, length)

    return apply(name, narrowed, operandA)


def PadTile(name: str, operandA: Operand, dim: int, original_length: int) -> Tensor:
    """Return the tensor with zeros behind the rows or the columns, up to whole tiles of 32."""

    def padded(x: torch.Tensor) -> torch.Tensor:
        _require_size("PadTile", x, dim, original_length)
        at = dim % x.ndim - x.ndim
        if at not in (-1, -2):
            raise PyBudaError(f"PadTile: dimension {dim} came; the last two have tiles")
        more = -x.shape[dim] % _TILE
        return functional.pad(x, (0, more) if at == -1 else (0, 0, 0, more))

    return apply(name, padded, operandA)


def BudaPad(name: str, operandA: Operand, paddings: tuple[int, int], value: float) -> Tensor:
    """Return the tensor with (rows, columns) of tiles more, which hold `value`.

    Before them zeros fill the last tile of what gets more.
    """

    def padded(x: torch.Tensor) -> torch.Tensor:
        rows, columns = (
            -x.shape[at] % _TILE if n else 0 for at, n in zip((-2, -1), paddings, strict=True)
        )
        whole = functional.pad(x, (0, columns, 0, rows))
        return functional.pad(whole, (0, paddings[1] * _TILE, 0, paddings[0] * _TILE), value=value)

    return apply(name, padded, operandA)


def BudaUnpad(
    name: str, operandA: Operand, original_length: tuple[int, int], paddings: tuple[int, int]
) -> Tensor:
    """Return the first (rows, columns) of `original_length`, without what `BudaPad` put behind."""

    def unpadded(x: torch.Tensor) -> torch.Tensor:
        for at, size, tiles in zip((-2, -1), original_length, paddings, strict=True):
            if tiles:
                _require_size("BudaUnpad", x, at, size + -size % _TILE + tiles * _TILE)
        rows, columns = original_length
        return x[..., :rows, :columns]

    return apply(name, unpadded, operandA)


def PixelShuffle(name: str, operandA: Operand, upscale_factor: int) -> Tensor:
    """Return images (N, C f f, H, W) as (N, C, H f, W f), f being the factor."""
    return apply(name, lambda x: functional.pixel_shuffle(x, upscale_factor), operandA)


def _require_size(kind: str, x: torch.Tensor, dim: int, size: int) -> None:
    if x.shape[dim] != size:
        raise PyBudaError(f"{kind}: dimension {dim} has {x.shape[dim]} elements, not {size}")
