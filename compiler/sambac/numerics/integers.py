"""Weights as small whole numbers with scales: by blocks of rows, or by channels.

    weight  =  (code - middle) * scale          middle: 8 of 4 bits, 128 of 8 bits

The middle stands for 0, so that what is padded or pruned stays exactly 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

_Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[Any]]

_BYTE = 8
_AT_ONCE = 256  # columns, so that what is worked on stays in the processor's cache
_LARGEST = 127
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8)


@dataclass(frozen=True)
class BlockCodes:
    """A matrix [rows, columns] in blocks of rows, each with a scale.

    `codes` are [columns, blocks, bytes of a block] in uint8; of 4 bits, two codes are in a byte,
    the first in its lower half. `scales` are [columns, blocks] in float32. The last block is filled
    up with zeros.
    """

    codes: _Array
    scales: _Array
    bits: int
    rows: int

    def matrix(self) -> _Array:
        """Return the matrix that the codes stand for, [rows, columns] in float32."""
        codes = self.codes
        if self.bits < _BYTE:
            halves = np.stack([codes & 15, codes >> 4], axis=-1)
            codes = halves.reshape(*codes.shape[:-1], -1)
        whole = codes.astype(np.float32) - np.float32(1 << (self.bits - 1))
        values = (whole * self.scales[..., None]).reshape(len(codes), -1)
        return np.ascontiguousarray(values[:, : self.rows].T)


def in_blocks(matrix: _Array, bits: int, block: int) -> BlockCodes:
    """Return `matrix` [rows, columns], in `bits` of 4 or 8, with a scale for `block` rows.

    Of 8 bits, the number of a block with the largest magnitude has the lowest code, exactly. Of 4,
    steps are as much smaller as makes the sum of the squared errors of the block the least: the few
    codes are better spent on the many small numbers than on the one that is largest.
    """
    rows, columns = matrix.shape
    count = -(-rows // block)
    codes = np.empty((columns, count, block * bits // _BYTE), np.uint8)
    scales = np.empty((columns, count), np.float32)
    for first in range(0, columns, _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        part = np.zeros((len(scales[some]), count * block), np.float32)
        part[:, :rows] = matrix[:, some].T
        codes[some], scales[some] = _coded(part.reshape(-1, count, block), bits)
    return BlockCodes(codes, scales, bits, rows)


def _coded(blocks: _Array, bits: int) -> tuple[_Array, _Array]:
    """Return the codes of blocks along the last axis, and their scales."""
    middle = 1 << (bits - 1)
    low, high = blocks.min(-1), blocks.max(-1)
    scales = np.where(-low >= high, low, high) / np.float32(-middle)
    if bits < _BYTE:
        scales = _fitted(blocks, scales, middle)
    codes = (_whole(blocks, scales, middle) + middle).astype(np.uint8)
    return (codes[..., 0::2] | (codes[..., 1::2] << 4) if bits < _BYTE else codes), scales


def _whole(blocks: _Array, scales: _Array, middle: int) -> _Array:
    """Return the whole numbers, from -`middle` on, that stand for the numbers of blocks."""
    with np.errstate(divide="ignore", over="ignore"):
        factors = np.where(np.abs(scales) > np.finfo(np.float32).tiny, 1 / scales, np.float32(0))
    wide = blocks * factors[..., None]
    np.rint(wide, out=wide)
    return np.clip(wide, -middle, middle - 1, out=wide)


def _fitted(blocks: _Array, scales: _Array, middle: int) -> _Array:
    """Return `scales`, or the share of each that has the least squared error for its block.

    Sums are of float64, in which hosts differ too little to choose differently.
    """
    best, least = scales, np.full(scales.shape, np.inf)
    for share in _SHARES:
        tried = scales * np.float32(share)
        off = blocks - _whole(blocks, tried, middle) * tried[..., None]
        squares = np.square(off, dtype=np.float64).sum(-1)
        best, least = np.where(squares < least, tried, best), np.minimum(squares, least)
    return best


@dataclass(frozen=True)
class ChannelCodes:
    """An array with a scale for each index of one axis: `codes` in uint8, `scales` in float32."""

    codes: _Array
    scales: _Array
    axis: int

    def array(self) -> _Array:
        """Return the array that the codes stand for, in float32."""
        shape = [1] * self.codes.ndim
        shape[self.axis] = -1
        whole = self.codes.astype(np.float32) - np.float32(MIDDLE)
        return whole * self.scales.reshape(shape)


MIDDLE = 128
"""The code of 0 in bytes."""


def by_channel(array: _Array, axis: int, least: _Array | float = 0.0) -> ChannelCodes:
    """Return `array` in codes from 1 to 255, with a scale for each index of `axis`.

    Scales are at least `least`. Channels too small for one of float32 are zeros, with a scale of 1.
    """
    others = tuple(at for at in range(array.ndim) if at != axis)
    largest = np.abs(array).max(others)
    scales = np.maximum(largest / np.float32(_LARGEST), least).astype(np.float32)
    scales = np.where(scales > np.finfo(np.float32).tiny, scales, np.float32(1))
    whole = np.rint(array / np.expand_dims(scales, others))
    codes = np.clip(whole, -_LARGEST, _LARGEST) + MIDDLE
    return ChannelCodes(codes.astype(np.uint8), scales, axis)


def relative_error(found: _Array, exact: _Array) -> float:
    """Return the length of the difference over that of `exact`; 0 where both are zeros."""
    off, length = (float(np.linalg.norm(each.reshape(-1))) for each in (found - exact, exact))
    return off / length if length else off


@dataclass(frozen=True)
class ByteScale:
    """How unsigned bytes stand for numbers: (code - `zero`) * `scale`."""

    scale: float
    zero: int

    @classmethod
    def of(cls, low: float, high: float) -> ByteScale:
        """Return the scale for numbers from `low` to `high`, and 0, which has a code of its own.

        The scale has 8 digits, rounded up, so that hosts whose sums differ in the last digits find
        the same.
        """
        low, high = min(low, 0.0), max(high, 0.0)
        step = (high - low) / _CODES
        if not step > np.finfo(np.float32).tiny:
            return cls(1.0, 0)
        share, exponent = np.frexp(step)
        scale = float(np.ldexp(np.ceil(share * _DIGITS) / _DIGITS, exponent))
        return cls(scale, int(np.clip(np.rint(-low / scale), 0, _CODES)))


_CODES = 255
_DIGITS = 256
