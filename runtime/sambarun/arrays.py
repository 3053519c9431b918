"""Tensors as numpy arrays, and back: element types numpy lacks, packed ones, raw memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pef import dtypes

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_COMPLEX = frozenset({14, 15})


def is_bindable(type_spelling: str) -> bool:
    """Tell whether values of a type can be bound by address: tensors of plain numbers."""
    number = dtypes.parse(type_spelling)
    return number is not None and number != dtypes.STRING and number not in _COMPLEX


def from_bytes(data: Bytes, dtype: int, shape: Sequence[int]) -> Array:
    """Return the tensor that `data` holds; a view, except where elements are packed."""
    bits = dtypes.BY_NUMBER[dtype].bits
    if bits < 8:
        return _unpack(data, dtype, bits, prod(shape)).reshape(shape)
    return data.view(dtypes.numpy_dtype(dtype)).reshape(shape)


def to_bytes(array: Array, dtype: int) -> Array:
    """Return `array`, C-contiguous, as memory that holds element type `dtype`; packed if need be.

    `array` has the numpy type of `dtype` or one of the same width.
    """
    bits = dtypes.BY_NUMBER[dtype].bits
    if bits < 8:
        return _pack(array, bits)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.ascontiguousarray(array).reshape(array.shape)


def at_address(address: int, size: int) -> Bytes:
    """Return `size` bytes of memory at `address` as an array, which does not keep it alive."""
    if not size:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def address_of(array: Array) -> int:
    """Return where the memory of `array` begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def _unpack(data: Bytes, dtype: int, bits: int, count: int) -> Array:
    """Return one element a byte from elements packed without gaps, the first in the low bits."""
    flat = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits)
    values = np.packbits(flat, axis=1, bitorder="little").reshape(count)
    return values.view(dtypes.numpy_dtype(dtype))


def _pack(array: Array, bits: int) -> Bytes:
    """Return elements of less than a byte packed without gaps, the first in the low bits."""
    values = np.ascontiguousarray(array).reshape(-1)
    raw = (
        values.view(np.uint8) if values.dtype.kind == "V" else values.astype(np.int8).view(np.uint8)
    )
    flat = np.unpackbits(raw.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    return np.packbits(flat.reshape(-1), bitorder="little")
