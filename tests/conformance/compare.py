"""The suite's own idea of equal outputs: same structure, shapes and types, close values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_BFLOAT16_RTOL = 2**-6  # two units in the last place


class DifferentError(Exception):
    """An output differs from what the case expects; the message says in what respect."""


def check_outputs(expected: Sequence[Any], actual: Sequence[Any], rtol: float, atol: float) -> None:
    """Compare the outputs of a case. Raises DifferentError."""
    if len(expected) != len(actual):
        raise DifferentError("wrong number of outputs")
    for one, other in zip(expected, actual, strict=True):
        _check_value(one, other, rtol, atol)


def _check_value(expected: Any, actual: Any, rtol: float, atol: float) -> None:
    if expected is None or actual is None:
        if expected is not actual:
            raise DifferentError("an empty optional is not empty, or the other way round")
    elif isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple):
            raise DifferentError("no sequence where one is expected")
        check_outputs(expected, actual, rtol, atol)
    else:
        _check_array(np.asarray(expected), np.asarray(actual), rtol, atol)


def _check_array(
    expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], rtol: float, atol: float
) -> None:
    if expected.shape != actual.shape:
        raise DifferentError("wrong shape")
    if expected.dtype.kind in "OUS":
        if actual.astype(object).tolist() != expected.astype(object).tolist():
            raise DifferentError("wrong strings")
        return
    if expected.dtype != actual.dtype:
        raise DifferentError(f"wrong type: {actual.dtype} instead of {expected.dtype}")
    if expected.dtype.name == "bfloat16":
        rtol = max(rtol, _BFLOAT16_RTOL)
    if expected.dtype.kind == "V":  # bfloat16, float8, int4: numpy cannot compare them
        expected, actual = expected.astype(np.float32), actual.astype(np.float32)
    with np.errstate(all="ignore"):
        if not np.allclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True):
            raise DifferentError("wrong values")
