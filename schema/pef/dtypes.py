"""Element types: ONNX's numbers, their names, sizes and numpy types.

>>> nbytes(22, (3,))    # three int4 values, two to a byte
2
>>> spelling(1), parse("tensor(float)")
('tensor(float)', 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from math import prod
from typing import NamedTuple

import numpy as np


class ElementType(NamedTuple):
    """One element type.

    `number` is ONNX's `TensorProto.DataType`, `name` what users read and write, `bits` the size of
    an element, 0 where it has none (strings). Elements smaller than a byte are packed without
    gaps. `storage` names the numpy type that holds the raw bits; `scalar` the type that
    computes with them, in numpy or, with a leading `ml_dtypes.`, there.
    """

    number: int
    name: str
    bits: int
    storage: str
    scalar: str

    @property
    def spelling(self) -> str:
        """The tensor type as onnxruntime spells it: `tensor(float)`."""
        return f"tensor({_ORT_NAMES.get(self.name, self.name)})"


_ORT_NAMES = {"float32": "float", "float64": "double"}


def _numpy(number: int, name: str, bits: int) -> ElementType:
    return ElementType(number, name, bits, name, name)


def _extended(number: int, name: str, bits: int, scalar: str) -> ElementType:
    return ElementType(
        number, name, bits, "uint16" if bits == 16 else "uint8", f"ml_dtypes.{scalar}"
    )


ELEMENT_TYPES = (
    _numpy(1, "float32", 32),
    _numpy(2, "uint8", 8),
    _numpy(3, "int8", 8),
    _numpy(4, "uint16", 16),
    _numpy(5, "int16", 16),
    _numpy(6, "int32", 32),
    _numpy(7, "int64", 64),
    ElementType(8, "string", 0, "object", "object"),
    _numpy(9, "bool", 8),
    _numpy(10, "float16", 16),
    _numpy(11, "float64", 64),
    _numpy(12, "uint32", 32),
    _numpy(13, "uint64", 64),
    _numpy(14, "complex64", 64),
    _numpy(15, "complex128", 128),
    _extended(16, "bfloat16", 16, "bfloat16"),
    _extended(17, "float8e4m3fn", 8, "float8_e4m3fn"),
    _extended(18, "float8e4m3fnuz", 8, "float8_e4m3fnuz"),
    _extended(19, "float8e5m2", 8, "float8_e5m2"),
    _extended(20, "float8e5m2fnuz", 8, "float8_e5m2fnuz"),
    _extended(21, "uint4", 4, "uint4"),
    _extended(22, "int4", 4, "int4"),
    _extended(23, "float4e2m1", 4, "float4_e2m1fn"),
    _extended(24, "float8e8m0", 8, "float8_e8m0fnu"),
    _extended(25, "uint2", 2, "uint2"),
    _extended(26, "int2", 2, "int2"),
    _extended(27, "float6e2m3", 6, "float6_e2m3fn"),
    _extended(28, "float6e3m2", 6, "float6_e3m2fn"),
)
FLOAT = 1
STRING = 8
DOUBLE = 11

BY_NUMBER = {kind.number: kind for kind in ELEMENT_TYPES}
BY_NAME = {kind.name: kind for kind in ELEMENT_TYPES}
_CONTAINERS = frozenset({"map", "optional", "seq"})
_BY_SPELLING = {kind.spelling: kind.number for kind in ELEMENT_TYPES}


def nbytes(dtype: int, shape: Iterable[int]) -> int:
    """Size in bytes of a tensor of element type `dtype`, of a fully known shape.

    Raises `KeyError` for a number that is no element type, `ValueError` for strings.
    """
    kind = BY_NUMBER[dtype]
    if not kind.bits:
        raise ValueError(f"a tensor of {kind.name}s has no fixed size")
    return (prod(shape) * kind.bits + 7) // 8


def static_nbytes(dtype: int, shape: Sequence[int | str | None] | None) -> int | None:
    """Size in bytes of a tensor, None where it is not known before a run."""
    kind = BY_NUMBER.get(dtype)
    if kind is None or not kind.bits or shape is None:
        return None
    sizes = [size for size in shape if isinstance(size, int)]
    return nbytes(dtype, sizes) if len(sizes) == len(shape) else None


def spelling(dtype: int) -> str:
    """The type of a tensor as onnxruntime spells it; `KeyError` for an unknown number."""
    return BY_NUMBER[dtype].spelling


def parse(text: str) -> int | None:
    """The element type of `tensor(float)` and the like; None if it is no tensor type."""
    return _BY_SPELLING.get(text)


def container(text: str) -> tuple[str, str]:
    """Return what kind of container a type is, and what it contains; no kind if it is none.

    >>> container("optional(seq(tensor(float)))"), container("tensor(float)")
    (('optional', 'seq(tensor(float))'), ('', 'tensor(float)'))
    """
    kind, _, rest = text.partition("(")
    return (kind, rest[:-1]) if kind in _CONTAINERS else ("", text)


def is_optional(text: str) -> bool:
    """Tell whether values of a type may be absent."""
    return container(text)[0] == "optional"


def numpy_dtype(dtype: int) -> np.dtype[np.generic]:
    """The numpy type of one unpacked element, with its arithmetic where there is any.

    Types numpy lacks come from `ml_dtypes`; without that package the type of the raw bits is
    returned (`uint16` for bfloat16). Raises `KeyError` for an unknown number.
    """
    kind = BY_NUMBER[dtype]
    package, _, name = kind.scalar.rpartition(".")
    if not package:
        return np.dtype(kind.scalar)
    try:
        return np.dtype(getattr(import_module(package), name, kind.storage))
    except ModuleNotFoundError:
        return np.dtype(kind.storage)


def from_numpy(dtype: np.dtype[np.generic]) -> int | None:
    """The element type of a numpy (or ml_dtypes) type, None if there is none."""
    if dtype.kind in "OUST":
        return STRING
    name = dtype.name if dtype.isbuiltin == 1 else f"ml_dtypes.{dtype.name}"
    return _BY_SCALAR.get(name)


_BY_SCALAR = {kind.scalar: kind.number for kind in ELEMENT_TYPES}
