"""Arrays from files in the element type that a program takes, where that keeps their meaning."""

from __future__ import annotations

import numpy as np

from pef import dtypes
from sambarun.arrays import Array

_LADDER = "biuf"


def converted(array: Array, number: int) -> Array:
    """Return `array` with element type `number`, contiguous.

    Floating-point numbers may lose digits but stay finite; integers and booleans become integers
    or floating-point numbers exactly. Raw elements, as numpy stores the types that it lacks, are
    taken at their word. Raises `ValueError` with what the array is and what was expected.
    """
    target = dtypes.numpy_dtype(number)
    if array.dtype == target:
        return np.ascontiguousarray(array).reshape(array.shape)
    kind = dtypes.BY_NUMBER[number]
    if array.dtype.kind == "V" and array.dtype.itemsize == target.itemsize:
        return np.ascontiguousarray(array).reshape(array.shape).view(target)
    if array.dtype.kind not in _LADDER or target.kind not in _LADDER[1:]:
        raise ValueError(f"{array.dtype}; {kind.name} was expected")
    if array.dtype.kind == "f" and target.kind != "f":
        raise ValueError(f"{array.dtype}; {kind.name} was expected")
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(target)
        if array.dtype.kind == "f":
            fits = np.isfinite(result) == np.isfinite(array)
        else:
            fits = (result.astype(array.dtype) == array) & ((result < 0) == (array < 0))
    if not fits.all():
        worst = array.reshape(-1)[int(np.argmin(fits.reshape(-1)))]
        raise ValueError(f"{array.dtype} and holds {worst}, which is no {kind.name}")
    return result
