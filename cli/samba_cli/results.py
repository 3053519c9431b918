"""What a run gave: a summary, and a comparison with what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .shell import Wrong

Array = npt.NDArray[Any]
_FIRST = 3
_UNWRAPPED = 1 << 30


def summary(outputs: Mapping[str, object]) -> list[str]:
    """Return a table of the results: name, dtype, shape, range, first values."""
    from pef.text import name_text, shape_text, table

    rows = []
    for name, value in outputs.items():
        if isinstance(value, np.ndarray):
            cells = (value.dtype.name, shape_text(value.shape), *_range(value), _first(value))
        else:
            cells = (_kind(value), "-", "-", "-", _first_map(value))
        rows.append((name_text(name), *cells))
    headers = ("output", "dtype", "shape", "min", "max", "first values")
    return table(headers, rows, ("min", "max"), _UNWRAPPED)


def _kind(value: object) -> str:
    if value is None:
        return "absent"
    if isinstance(value, dict):
        return f"map of {len(value)}"
    if not isinstance(value, (list, tuple)):
        return type(value).__name__
    items = " maps" if value and isinstance(value[0], dict) else ""
    return f"sequence of {len(value)}{items}"


def _range(array: Array) -> tuple[str, str]:
    """Return the smallest and the largest number, and how many are none."""
    if not array.size or array.dtype.kind in "OSUV":
        return "-", "-"
    if array.dtype.kind == "c":
        array = np.abs(array)
    numbers = array.astype(np.float64) if array.dtype.kind not in "biuf" else array
    if numbers.dtype.kind != "f":
        return str(numbers.min()), str(numbers.max())
    unreal = int(np.isnan(numbers).sum())
    if unreal == numbers.size:
        return "nan", "nan"
    note = f" ({unreal} nan)" if unreal else ""
    return f"{np.nanmin(numbers):.5g}", f"{np.nanmax(numbers):.5g}{note}"


def _first(array: Array) -> str:
    values = array.reshape(-1)[:_FIRST].tolist()
    shown = " ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in values)
    return shown + (" ..." if array.size > _FIRST else "") or "-"


def _first_map(value: object) -> str:
    """Return the first entries of a map, or of the first map of a sequence."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _first_map(value[0]) + (" ..." if len(value) > 1 else "")
    if not isinstance(value, dict):
        return "-"
    shown = [f"{key!r}: {item:.4g}" for key, item in list(value.items())[:_FIRST]]
    return f"{{{', '.join(shown)}{', ...' if len(value) > _FIRST else ''}}}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether a result is what was expected, and the sentence that says so."""

    equal: bool
    text: str


def compare(name: str, came: object, expected: Array, rtol: float, atol: float) -> Comparison:
    """Compare a result with what was expected: |came - expected| <= atol + rtol * |expected|.

    NaN equals NaN. Element types may differ in width, not in kind.
    """
    if not isinstance(came, np.ndarray):
        return Comparison(False, f"{name}: {_kind(came)} came, an array was expected")
    if came.shape != expected.shape:
        return Comparison(False, f"{name}: shape {came.shape} came, {expected.shape} was expected")
    if came.dtype.kind in "OSU" or expected.dtype.kind in "OSU":
        wrong = came.astype(str) != expected.astype(str)
        errors = ""
    else:
        wrong, errors = _numeric(_wide(came), _wide(expected, came.dtype), rtol, atol)
    if not wrong.any():
        return Comparison(True, f"{name}: as expected{errors}")
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = ",".join(str(int(index)) for index in at)
    count = f"{int(wrong.sum()):,} of {wrong.size:,} elements differ"
    where = f"{name}[{place}] is {came[at]}, expected {expected[at]}" if at else f"{name} differs"
    if not at:
        where = f"{name} is {came[()]}, expected {expected[()]}"
    return Comparison(False, f"{where}; {count}{errors}")


def _wide(array: Array, stored: np.dtype[Any] | None = None) -> Array:
    """Return `array` in the widest type of its kind; raw bits as what the result's type says."""
    if array.dtype.kind == "V" and stored is not None and array.dtype.itemsize == stored.itemsize:
        array = array.view(stored)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _numeric(came: Array, expected: Array, rtol: float, atol: float) -> tuple[Array, str]:
    """Return where two arrays differ, and their largest errors in words."""
    error, size = _distance(came, expected), np.abs(expected).astype(np.float64)
    same = (came == expected) | (np.isnan(came) & np.isnan(expected))
    finite = np.isfinite(came) & np.isfinite(expected)
    with np.errstate(invalid="ignore"):
        wrong = ~same & ~(finite & (error <= atol + rtol * size))
    if not finite.any():
        return wrong, ""
    error, allowed = error[finite], (atol + rtol * size)[finite]
    return wrong, f" (max error {error.max():.3g}{_share(error, allowed)})"


def _share(error: Array, allowed: Array) -> str:
    """Return how much of what is allowed the worst error takes; nothing where none is allowed."""
    if (error[allowed == 0] > 0).any() or not error.any():
        return ""
    worst = np.divide(error, allowed, out=np.zeros_like(error), where=allowed > 0).max()
    share = f"{worst:,.3g} times" if worst > 1 else f"{worst:.0%} of"
    return f"; at worst {share} the tolerance"


def _distance(came: Array, expected: Array) -> Array:
    """Return |came - expected|; of integers exactly, however large they are."""
    if came.dtype.kind in "iu" and expected.dtype.kind in "iu":
        low, high = np.minimum(came, expected), np.maximum(came, expected)
        if low.dtype.kind in "iu":
            exact: Array = high.astype(np.uint64) - low.astype(np.uint64)
            return exact.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference: Array = np.abs(_real(came) - _real(expected))
    return difference.astype(np.float64)


def _real(array: Array) -> Array:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def expectation(word: str) -> tuple[str, str]:
    """Return the name and the file in `y=@y.npy`."""
    name, equals, file = word.partition("=@")
    if not equals or not name or not file:
        raise Wrong(f"--expect {word}: expected NAME=@FILE.npy.")
    return name, file
