"""Operators that move elements without computing: the original's tensor manipulations.

Tensors are (..., Z, R, C): depth, rows and columns are their last three dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pybuda.errors import PyBudaError

from .apply import each, operator

_MODES = ("constant", "replicate", "reflect")
TILE_DIM = 32
"""Rows and columns of a tile of the device."""

Reshape = each(
    "Reshape",
    "Return the elements, in order, in another shape; one size may be -1.",
    lambda x, shape: torch.reshape(x, tuple(shape)),
    shape="Sequence[int]",
)
Unsqueeze = each(
    "Unsqueeze", "Return x with a dimension of size 1 more, at `dim`.", torch.unsqueeze, dim="int"
)
Repeat = each(
    "Repeat",
    "Return the tensor `factors` times along each of its dimensions.",
    lambda x, factors: x.repeat(*factors),
    factors="Sequence[int]",
)
PixelShuffle = each(
    "PixelShuffle",
    "Return images (N, C f f, H, W) as (N, C, H f, W f), f being the factor.",
    functional.pixel_shuffle,
    upscale_factor="int",
)


@operator
def Transpose(
    operandA: Tensor, dim0: int, dim1: int, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Return the tensor with two dimensions exchanged, in its own type or in `out_dtype`."""
    moved = torch.transpose(operandA, dim0, dim1)
    return moved if out_dtype is None else moved.to(out_dtype)


@operator
def Squeeze(operandA: Tensor, dim: int) -> Tensor:
    """Return the tensor without the dimension `dim`, whose size is 1."""
    _require_size("Squeeze", operandA, dim, 1)
    return torch.squeeze(operandA, dim)


@operator
def HSlice(operandA: Tensor, slices: int) -> Tensor:
    """Cut the columns into `slices`: (..., Z, R, C) becomes (..., Z * slices, R, C / slices)."""
    *outer, z, r, c = _layers(operandA)
    _require_divides("HSlice", slices, c, "columns")
    parts = operandA.reshape(*outer, z, r, slices, c // slices).transpose(-3, -2)
    return parts.reshape(*outer, z * slices, r, c // slices)


@operator
def VSlice(operandA: Tensor, slices: int) -> Tensor:
    """Cut the rows into `slices`: (..., Z, R, C) becomes (..., Z * slices, R / slices, C)."""
    *outer, z, r, c = _layers(operandA)
    _require_divides("VSlice", slices, r, "rows")
    return operandA.reshape(*outer, z * slices, r // slices, c)


@operator
def HStack(operandA: Tensor, slices: int = -1) -> Tensor:
    """Undo `HSlice`; without `slices` all of Z is put side by side."""
    *outer, z, r, c = _layers(operandA)
    count = z if slices == -1 else slices
    _require_divides("HStack", count, z, "slices of Z")
    parts = operandA.reshape(*outer, z // count, count, r, c).transpose(-3, -2)
    return parts.reshape(*outer, z // count, r, count * c)


@operator
def VStack(operandA: Tensor, slices: int = -1) -> Tensor:
    """Undo `VSlice`; without `slices` all of Z is put one below the other."""
    *outer, z, r, c = _layers(operandA)
    count = z if slices == -1 else slices
    _require_divides("VStack", count, z, "slices of Z")
    return operandA.reshape(*outer, z // count, count * r, c)


@operator
def Index(
    operandA: Tensor, dim: int, start: int, stop: int | None = None, stride: int = 1
) -> Tensor:
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
def Select(operandA: Tensor, dim: int, index: int | tuple[int, int], stride: int = 0) -> Tensor:
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
    operandA: Tensor, pad: Sequence[int], mode: str = "constant", channel_last: bool = False
) -> Tensor:
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
def Concatenate(*operands: Tensor, axis: int) -> Tensor:
    """Return the tensors one after the other along `axis`."""
    return torch.cat(operands, axis)


@operator
def Stack(*operands: Tensor, axis: int) -> Tensor:
    """Return the tensors one after the other along a new dimension `axis`."""
    return torch.stack(operands, axis)


@operator
def Interleave(*operands: Tensor, axis: int, stride: int) -> Tensor:
    """Return the tensors along `axis`, `stride` elements of each in turn."""
    place = axis % operands[0].ndim
    outer, inner = operands[0].shape[:place], operands[0].shape[place + 1 :]
    parts = [each.reshape(*outer, -1, stride, *inner) for each in operands]
    return torch.stack(parts, place + 1).reshape(*outer, -1, *inner)


@operator
def Broadcast(operandA: Tensor, dim: int, shape: int) -> Tensor:
    """Return the tensor with `shape` copies along `dim`, whose size is 1."""
    sizes = [*operandA.shape]
    sizes[dim] = shape
    return operandA.expand(sizes)


@operator
def Narrow(operandA: Tensor, dim: int, start: int, length: int, original_length: int) -> Tensor:
    """Return `length` elements of `dim` from `start` on; `original_length` is its whole size.

    The original takes that size and does not look at it; a wrong one is told.
    """
    _require_size("Narrow", operandA, dim, original_length)
    return torch.narrow(operandA, dim, start, length)


@operator
def PadTile(operandA: Tensor, dim: int, original_length: int) -> Tensor:
    """Return the tensor with zeros behind the rows or the columns, up to whole tiles of 32."""
    _require_size("PadTile", operandA, dim, original_length)
    at = dim % operandA.ndim - operandA.ndim
    if at not in (-1, -2):
        raise PyBudaError(f"PadTile: dimension {dim} came; the last two have tiles")
    more = -operandA.shape[dim] % TILE_DIM
    return functional.pad(operandA, (0, more) if at == -1 else (0, 0, 0, more))


@operator
def BudaPad(operandA: Tensor, paddings: tuple[int, int], value: float) -> Tensor:
    """Return the tensor with (rows, columns) of tiles more, which hold `value`.

    Before them zeros fill the last tile of what gets more.
    """
    rows, columns = (
        -operandA.shape[at] % TILE_DIM if n else 0 for at, n in zip((-2, -1), paddings, strict=True)
    )
    whole = functional.pad(operandA, (0, columns, 0, rows))
    return functional.pad(
        whole, (0, paddings[1] * TILE_DIM, 0, paddings[0] * TILE_DIM), value=value
    )


@operator
def BudaUnpad(
    operandA: Tensor, original_length: tuple[int, int], paddings: tuple[int, int]
) -> Tensor:
    """Return the first (rows, columns) of `original_length`, without what `BudaPad` put behind."""
    for at, size, tiles in zip((-2, -1), original_length, paddings, strict=True):
        if tiles:
            _require_size("BudaUnpad", operandA, at, size + -size % TILE_DIM + tiles * TILE_DIM)
    rows, columns = original_length
    return operandA[..., :rows, :columns]


@operator
def Embedding(embedding_table: Tensor, operandA: Tensor) -> Tensor:
    """Return the row of `embedding_table` at each of the integers of `operandA`."""
    return functional.embedding(operandA, embedding_table)


@operator
def AdvIndex(operandA: Tensor, operandB: Tensor, dim: int = 0) -> Tensor:
    """Return the rows of a that the integers of b name; (1, n) of them give a dimension 1 before.

    Raises `PyBudaError` for another dimension than 0, which is what the original has.
    """
    if dim != 0:
        raise PyBudaError(f"AdvIndex: dimension {dim} came; 0 is supported")
    rows = torch.index_select(operandA, 0, operandB.reshape(-1))
    return rows.unsqueeze(0) if operandB.ndim > 1 else rows


@operator
def IndexCopy(operandA: Tensor, index: Tensor, value: Tensor, dim: int) -> Tensor:
    """Return a with the slices of `value` at the places `index` of dimension `dim`."""
    return torch.index_copy(operandA, dim, index.to(torch.int64), value.to(operandA.dtype))


def _layers(x: Tensor) -> tuple[int, ...]:
    """Return the shape. Raises `PyBudaError` if it has no depth, rows and columns."""
    if x.ndim < 3:
        raise PyBudaError(f"a tensor of {[*x.shape]} came; (..., depth, rows, columns) is expected")
    return tuple(x.shape)


def _require_divides(kind: str, count: int, size: int, what: str) -> None:
    """Raise `PyBudaError` unless `count` parts of `size` are equal."""
    if count < 1 or size % count:
        raise PyBudaError(f"{kind}: {size} {what} are not {count} equal parts")


def _require_size(kind: str, x: Tensor, dim: int, size: int) -> None:
    if x.shape[dim] != size:
        raise PyBudaError(f"{kind}: dimension {dim} has {x.shape[dim]} elements, not {size}")
