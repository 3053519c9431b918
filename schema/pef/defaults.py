"""Defaults of inputs whose size only a run tells: tensors that bring their shape with them.

The data of such a symbol, whose dimensions are open or whose elements are strings, is

    rank, sizes      int64 each
    zeros            up to a multiple of 64 bytes
    elements         as in any other data; of strings the length of each in bytes as int64, then
                     the UTF-8 of all of them, one after the other

All numbers are little-endian. Where shape and type give the size, data is the elements alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from struct import Struct
from typing import NamedTuple

from . import dtypes
from .errors import PefError
from .symbols import Shape, Symbol

_ALIGNMENT = 64
_NUMBER = Struct("<q")


class Default(NamedTuple):
    """A default: its shape, and its elements in row-major order, as bytes or as strings."""

    shape: tuple[int, ...]
    elements: memoryview | tuple[str, ...]


def encode(shape: Sequence[int], elements: bytes | memoryview | Sequence[str]) -> bytes:
    """Return the data of a default of `shape`; `elements` are bytes as in the file, or strings."""
    head = _numbers((len(shape), *shape))
    head += bytes(-len(head) % _ALIGNMENT)
    if isinstance(elements, bytes | memoryview):
        return b"".join((head, elements))
    texts = [text.encode() for text in elements]
    return b"".join((head, _numbers([len(text) for text in texts]), *texts))


def decode(data: memoryview, symbol: Symbol) -> Default:
    """Return the default that `data` holds for `symbol`, without a copy of numbers.

    Raises `PefError` if it is no tensor of the symbol's type that fits its shape.
    """
    head = _read(data, 0, 1)
    shape = _read(data, _NUMBER.size, head[0]) if head else None
    if shape is None or not _fits(shape, symbol.shape):
        raise PefError(f"the default of '{symbol.name}' has no shape that fits the input's")
    start = _NUMBER.size * (1 + len(shape))
    elements = data[start + -start % _ALIGNMENT :]
    if symbol.dtype == dtypes.STRING:
        texts = _texts(elements, prod(shape))
        if texts is None:
            raise PefError(f"the default of '{symbol.name}' is not {prod(shape)} strings of UTF-8")
        return Default(shape, texts)
    expected = dtypes.nbytes(symbol.dtype, shape)
    if len(elements) != expected:
        raise PefError(
            f"the default of '{symbol.name}' has {len(elements)} bytes, its shape and type need "
            f"{expected}"
        )
    return Default(shape, elements)


def _numbers(numbers: Sequence[int]) -> bytes:
    return b"".join(map(_NUMBER.pack, numbers))


def _read(data: memoryview, start: int, count: int) -> tuple[int, ...] | None:
    """Return `count` numbers at `start`, None if `data` ends before or the count is negative."""
    end = start + count * _NUMBER.size
    if not 0 <= start <= end <= len(data):
        return None
    return tuple(number for (number,) in _NUMBER.iter_unpack(data[start:end]))


def _fits(shape: tuple[int, ...], declared: Shape) -> bool:
    if min(shape, default=0) < 0:
        return False
    if declared is None:
        return True
    return len(shape) == len(declared) and all(
        size == dim for size, dim in zip(shape, declared, strict=True) if isinstance(dim, int)
    )


def _texts(data: memoryview, count: int) -> tuple[str, ...] | None:
    """Return the strings in `data`, None if they are not `count` or not UTF-8."""
    sizes = _read(data, 0, count)
    if sizes is None or min(sizes, default=0) < 0:
        return None
    bounds = list(accumulate(sizes, initial=count * _NUMBER.size))
    if bounds[-1] != len(data):
        return None
    try:
        return tuple(str(data[start:end], "utf-8") for start, end in pairwise(bounds))
    except UnicodeDecodeError:
        return None
