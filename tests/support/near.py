"""Comparing results with float64, on any processor.

Kernels of one operator sum in different orders on different processors, and those of torch in
another order than those of onnxruntime. So no test holds one rounded result against another: one
side is calculated in float64, and the limit is a share of the largest magnitude there, not of each
element. Where sums cancel, not even that says how far rounding reaches: `size` is then what enters
them.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# A hundred roundings of float32 of the largest magnitude.
TOLERANCE = 1.2e-5


def assert_near(
    found: object,
    exact: object,
    tolerance: float = TOLERANCE,
    *,
    size: float = 0.0,
    what: str = "result",
) -> None:
    """Require |found - exact| <= tolerance * scale in each element.

    The scale is the largest finite magnitude in `exact`, or `size` if that is larger. `exact` is of
    float64: a reference of float32 is a mistake of the test. Integers, booleans and what is not
    finite must be the same.
    """
    actual, expected = _array(found), _array(exact)
    assert actual.shape == expected.shape, f"{what}: {actual.shape} is not {expected.shape}"
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    assert expected.dtype == np.float64, f"{what}: the reference is {expected.dtype}, not float64"
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=what)
    scale = max(float(np.abs(expected[finite]).max(initial=0.0)), size)
    error = float(np.abs(actual[finite].astype(np.float64) - expected[finite]).max(initial=0.0))
    # Written so that a NaN is an error too.
    assert error <= tolerance * scale, f"{what}: off by {error:.3g} of {scale:.3g}"


def exactly(value: Any) -> Any:
    """Return a copy of a module, a tensor or a nest of them with float64 for every other float."""
    import torch
    from torch import nn

    if isinstance(value, nn.Module):
        return copy.deepcopy(value).double()
    if isinstance(value, torch.Tensor):
        value = value.detach().clone()
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(exactly(item) for item in value)
    return value


def _array(value: object) -> Array:
    detach = getattr(value, "detach", None)
    return np.asarray(value if detach is None else detach())
