"""Formulas that move elements, resize images and make integers of numbers, for devices with tiles.

Tensors are (..., Z, R, C): depth, rows and columns are their last three dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .errors import HostError

_MODES = ("constant", "replicate", "reflect")
TILE_DIM = 32
"""Rows and columns of a tile of the device."""
_NEAREST = "nearest_neighbor"
_LINEAR = ("linear", "bilinear")
_INTEGERS = (torch.int8, torch.uint8, torch.int32)


def transpose(
    operandA: Tensor, dim0: int, dim1: int, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Return the tensor with two dimensions exchanged, in its own type or in `out_dtype`."""
    moved = torch.transpose(operandA, dim0, dim1)
    return moved if out_dtype is None else moved.to(out_dtype)


def squeeze(operandA: Tensor, dim: int) -> Tensor:
    """Return the tensor without the dimension `dim`, whose size is 1."""
    _require_size("Squeeze", operandA, dim, 1)
    return torch.squeeze(operandA, dim)


def h_slice(operandA: Tensor, slices: int) -> Tensor:
    """Cut the columns into `slices`: (..., Z, R, C) becomes (..., Z * slices, R, C / slices)."""
    *outer, z, r, c = _layers(operandA)
    _require_divides("HSlice", slices, c, "columns")
    parts = operandA.reshape(*outer, z, r, slices, c // slices).transpose(-3, -2)
    return parts.reshape(*outer, z * slices, r, c // slices)


def v_slice(operandA: Tensor, slices: int) -> Tensor:
    """Cut the rows into `slices`: (..., Z, R, C) becomes (..., Z * slices, R / slices, C)."""
    *outer, z, r, c = _layers(operandA)
    _require_divides("VSlice", slices, r, "rows")
    return operandA.reshape(*outer, z * slices, r // slices, c)


def h_stack(operandA: Tensor, slices: int = -1) -> Tensor:
    """Undo `h_slice`; without `slices` all of Z is put side by side."""
    *outer, z, r, c = _layers(operandA)
    count = z if slices == -1 else slices
    _require_divides("HStack", count, z, "slices of Z")
    parts = operandA.reshape(*outer, z // count, count, r, c).transpose(-3, -2)
    return parts.reshape(*outer, z // count, r, count * c)


def v_stack(operandA: Tensor, slices: int = -1) -> Tensor:
    """Undo `v_slice`; without `slices` all of Z is put one below the other."""
    *outer, z, r, c = _layers(operandA)
    count = z if slices == -1 else slices
    _require_divides("VStack", count, z, "slices of Z")
    return operandA.reshape(*outer, z // count, count * r, c)


def index(
    operandA: Tensor, dim: int, start: int, stop: int | None = None, stride: int = 1
) -> Tensor:
    """Return the elements from `start` up to `stop`, which is the next one if left out.

    Negative positions count from the end. Raises `HostError` if there are none.
    """
    size = operandA.shape[dim]
    first = start + size if start < 0 else start
    end = first + 1 if stop is None else stop + size if stop < 0 else stop
    if stride <= 0 or not 0 <= first < end <= size:
        raise HostError(
            f"Index: [{start}:{stop}:{stride}] is nothing of dimension {dim}, which has {size}"
        )
    before = (slice(None),) * (dim % operandA.ndim)
    return operandA.narrow(dim, first, end - first)[(*before, slice(None, None, stride))]


def select(operandA: Tensor, dim: int, index: int | tuple[int, int], stride: int = 0) -> Tensor:
    """Return (start, length) = `index` of every `stride` elements; 0 is the whole dimension.

    An integer selects one element. What lies behind the end of the tensor is 0.
    """
    start, length = (index, 1) if isinstance(index, int) else index
    size, at = operandA.shape[dim], dim % operandA.ndim
    step = stride or size
    if start < 0 or length < 1 or start + length > step:
        raise HostError(f"Select: {length} elements from {start} on are not within each {step}")
    filled = functional.pad(operandA, (0, 0) * (operandA.ndim - 1 - at) + (0, -size % step))
    outer, inner = operandA.shape[:at], operandA.shape[at + 1 :]
    kept = filled.reshape(*outer, -1, step, *inner).narrow(at + 1, start, length)
    return kept.reshape(*outer, -1, *inner)


def pad(
    operandA: Tensor, pad: Sequence[int], mode: str = "constant", channel_last: bool = False
) -> Tensor:
    """Return the tensor with `pad` = (left, right) or (left, right, top, bottom) elements more.

    They are 0, those at the border, or mirrored ones: mode constant, replicate or reflect.
    """
    if mode not in _MODES:
        raise HostError(f"Pad: '{mode}' is no mode; there are {', '.join(_MODES)}")
    if len(pad) not in (2, 4):
        raise HostError(f"Pad: {len(pad)} sizes came; 2 (left, right) or 4 were expected")
    images = operandA.movedim(-1, -3) if channel_last else operandA
    wider = functional.pad(images, tuple(pad), mode=mode)
    return wider.movedim(-3, -1) if channel_last else wider


def concatenate(*operands: Tensor, axis: int) -> Tensor:
    """Return the tensors one after the other along `axis`."""
    return torch.cat(operands, axis)


def stack(*operands: Tensor, axis: int) -> Tensor:
    """Return the tensors one after the other along a new dimension `axis`."""
    return torch.stack(operands, axis)


def interleave(*operands: Tensor, axis: int, stride: int) -> Tensor:
    """Return the tensors along `axis`, `stride` elements of each in turn."""
    place = axis % operands[0].ndim
    outer, inner = operands[0].shape[:place], operands[0].shape[place + 1 :]
    parts = [each.reshape(*outer, -1, stride, *inner) for each in operands]
    return torch.stack(parts, place + 1).reshape(*outer, -1, *inner)


def broadcast(operandA: Tensor, dim: int, shape: int) -> Tensor:
    """Return the tensor with `shape` copies along `dim`, whose size is 1."""
    sizes = [*operandA.shape]
    sizes[dim] = shape
    return operandA.expand(sizes)


def narrow(operandA: Tensor, dim: int, start: int, length: int, original_length: int) -> Tensor:
    """Return `length` elements of `dim` from `start` on; `original_length` is its whole size.

    A wrong size is told.
    """
    _require_size("Narrow", operandA, dim, original_length)
    return torch.narrow(operandA, dim, start, length)


def pad_tile(operandA: Tensor, dim: int, original_length: int) -> Tensor:
    """Return the tensor with zeros behind the rows or the columns, up to whole tiles of 32."""
    _require_size("PadTile", operandA, dim, original_length)
    at = dim % operandA.ndim - operandA.ndim
    if at not in (-1, -2):
        raise HostError(f"PadTile: dimension {dim} came; the last two have tiles")
    more = -operandA.shape[dim] % TILE_DIM
    return functional.pad(operandA, (0, more) if at == -1 else (0, 0, 0, more))


def buda_pad(operandA: Tensor, paddings: tuple[int, int], value: float) -> Tensor:
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


def buda_unpad(
    operandA: Tensor, original_length: tuple[int, int], paddings: tuple[int, int]
) -> Tensor:
    """Return the first (rows, columns) of `original_length`, without what `buda_pad` put behind."""
    for at, size, tiles in zip((-2, -1), original_length, paddings, strict=True):
        if tiles:
            _require_size("BudaUnpad", operandA, at, size + -size % TILE_DIM + tiles * TILE_DIM)
    rows, columns = original_length
    return operandA[..., :rows, :columns]


def embedding(embedding_table: Tensor, operandA: Tensor) -> Tensor:
    """Return the row of `embedding_table` at each of the integers of `operandA`."""
    return functional.embedding(operandA, embedding_table)


def adv_index(operandA: Tensor, operandB: Tensor, dim: int = 0) -> Tensor:
    """Return the rows of a that the integers of b name; (1, n) of them give a dimension 1 before.

    Raises `HostError` for another dimension than 0.
    """
    if dim != 0:
        raise HostError(f"AdvIndex: dimension {dim} came; 0 is supported")
    rows = torch.index_select(operandA, 0, operandB.reshape(-1))
    return rows.unsqueeze(0) if operandB.ndim > 1 else rows


def index_copy(operandA: Tensor, index: Tensor, value: Tensor, dim: int) -> Tensor:
    """Return a with the slices of `value` at the places `index` of dimension `dim`."""
    return torch.index_copy(operandA, dim, index.to(torch.int64), value.to(operandA.dtype))


def _layers(x: Tensor) -> tuple[int, ...]:
    """Return the shape. Raises `HostError` if it has no depth, rows and columns."""
    if x.ndim < 3:
        raise HostError(f"a tensor of {[*x.shape]} came; (..., depth, rows, columns) is expected")
    return tuple(x.shape)


def _require_divides(kind: str, count: int, size: int, what: str) -> None:
    """Raise `HostError` unless `count` parts of `size` are equal."""
    if count < 1 or size % count:
        raise HostError(f"{kind}: {size} {what} are not {count} equal parts")


def _require_size(kind: str, x: Tensor, dim: int, size: int) -> None:
    if x.shape[dim] != size:
        raise HostError(f"{kind}: dimension {dim} has {x.shape[dim]} elements, not {size}")


def resize2d(
    operandA: Tensor,
    sizes: Sequence[int],
    method: str = _NEAREST,
    align_corners: bool = False,
    channel_last: bool = False,
) -> Tensor:
    """Return images (N, C, H, W) with `sizes`, (height, width).

    Methods are `nearest_neighbor`, `linear` and `bilinear`, which are the same. Raises
    `HostError` unless both sizes grow, or both shrink, by one whole factor.
    """
    if method != _NEAREST and method not in _LINEAR:
        raise HostError(f"Resize2d: '{method}' is no method; nearest_neighbor and bilinear are")
    images = operandA.movedim(-1, -3) if channel_last else operandA
    _require_one_factor("Resize2d", images.shape[-2:], sizes)
    if method == _NEAREST:
        found = functional.interpolate(images, tuple(sizes), mode="nearest")
    else:
        found = functional.interpolate(
            images, tuple(sizes), mode="bilinear", align_corners=align_corners
        )
    return found.movedim(-3, -1) if channel_last else found


def resize3d(operandA: Tensor, sizes: Sequence[int], method: str = _NEAREST) -> Tensor:
    """Return volumes (N, C, D, H, W) with `sizes`, (depth, height, width), of nearest elements."""
    if method != _NEAREST:
        raise HostError(f"Resize3d: '{method}' is no method; nearest_neighbor is")
    _require_one_factor("Resize3d", operandA.shape[-3:], sizes)
    return functional.interpolate(operandA, tuple(sizes), mode="nearest")


def _require_one_factor(kind: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Raise `HostError` unless sizes grow, or shrink, by one whole factor."""
    if len(before) != len(after):
        raise HostError(f"{kind}: {len(after)} sizes came; {len(before)} were expected")
    pairs = [*zip(before, after, strict=True)]
    grown = {new // old if old and new % old == 0 else 0 for old, new in pairs}
    shrunk = {old // new if new and old % new == 0 else 0 for old, new in pairs}
    if not any(len(factors) == 1 and 0 not in factors for factors in (grown, shrunk)):
        raise HostError(
            f"{kind}: from {[*before]} to {[*after]} is not by one whole factor in all dimensions"
        )


def quantize(
    operandA: Tensor, operandB: Tensor, zero_point: int, axis: int, out_dtype: torch.dtype
) -> Tensor:
    """Return round(a / scale) + zero point as integers; halves go to even.

    The scale is `operandB`: one number, or one for each index of `axis`. What is beyond the range
    of `out_dtype`, one of int8, uint8 and int32, becomes its end.
    """
    scale = _along(operandB.float(), operandA, axis)
    return _clamped("Quantize", torch.round(operandA.float() / scale) + zero_point, out_dtype)


def dequantize(
    operandA: Tensor,
    operandB: Tensor,
    zero_point: int,
    axis: int = -1,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return (a - zero point) * scale; `operandB` is the scale, as in `quantize`."""
    scale = _along(operandB.float(), operandA, axis)
    return ((operandA.float() - zero_point) * scale).to(out_dtype)


def requantize(
    operandA: Tensor,
    operand_inp_scale: Tensor,
    operand_out_scale: Tensor,
    input_zero_point: float,
    output_zero_point: float,
    out_dtype: torch.dtype,
    axis: int = -1,
) -> Tensor:
    """Return integers of one scale as integers of another: round(a * in / out + zero point).

    Raises `HostError` for an input zero point other than 0.
    """
    if input_zero_point != 0:
        raise HostError(f"Requantize: the input zero point is {input_zero_point}; 0 is supported")
    scale = _along(operand_inp_scale.float() / operand_out_scale.float(), operandA, axis)
    return _clamped("Requantize", torch.round(scale * operandA + output_zero_point), out_dtype)


def _along(scale: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return a vector of scales, one for each index of `axis` of `x`, in a shape that fits `x`."""
    if scale.ndim != 1:
        return scale
    shape = [1] * x.ndim
    shape[axis] = scale.shape[0]
    return scale.reshape(shape)


def _clamped(kind: str, numbers: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype not in _INTEGERS:
        raise HostError(f"{kind}: {dtype} came as out_dtype; int8, uint8 and int32 are supported")
    if dtype is torch.int32:  # whose largest number float32 does not have
        return numbers.double().clamp(-(2**31), 2**31 - 1).to(dtype)
    limits = torch.iinfo(dtype)
    return numbers.clamp(limits.min, limits.max).to(dtype)
