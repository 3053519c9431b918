"""Functions of numpy on SambaTensors: torch's functions of the same names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np

_TORCH_NAMES = {
    "equal": "eq",
    "invert": "bitwise_not",
    "power": "pow",
    "rint": "round",
    "fabs": "abs",
    "conjugate": "conj_physical",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
}
"""Names that mean something else to torch, or nothing."""


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Iterable[object], options: Mapping[str, object]
) -> object:
    """Return what `ufunc` gives for `inputs`: a tensor if torch has the function.

    What torch does not have, `ufunc.reduce` and the like, and calls with `out` or other options
    are left to numpy, and give arrays.
    """
    name = _TORCH_NAMES.get(ufunc.__name__, ufunc.__name__)
    function = getattr(torch, name, None)
    if method == "__call__" and callable(function) and not options:
        result: object = function(*map(torch.as_tensor, inputs))
        return result
    arrays = [value.numpy() if isinstance(value, Tensor) else value for value in inputs]
    found: object = getattr(ufunc, method)(*arrays, **options)
    return found
