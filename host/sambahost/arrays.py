"""Between torch tensors and the arrays of the runtime."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from pef.dtypes import BY_NUMBER, numpy_dtype

_BITS = {1: "uint8", 2: "uint16"}
"""Numpy's types for the bits of an element, by its bytes."""


def to_array(tensor: Tensor) -> np.ndarray:
    """Return the values of `tensor` as sambarun takes them, where they are if that is possible."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach() if tensor.requires_grad else tensor
        if plain.dtype is torch.bfloat16:
            return plain.contiguous().view(torch.uint16).numpy().view(_bfloat16())
        return plain.numpy()


@cache
def _bfloat16() -> np.dtype[np.generic]:
    """Return numpy's type for torch's bfloat16: that of its bits alone where there is none."""
    return next(numpy_dtype(n) for n, kind in BY_NUMBER.items() if kind.name == "bfloat16")


def from_array(array: np.ndarray, dtype: int) -> Tensor:
    """Return `array`, of the element type `dtype` of ONNX, as a tensor that shares its memory."""
    wanted = torch_type(dtype)
    # Element types that numpy has from elsewhere, as bfloat16, are bits to torch.
    tensor = torch.from_numpy(
        array if array.dtype.isbuiltin == 1 else array.view(_BITS[array.itemsize])
    )
    return tensor if tensor.dtype is wanted else tensor.view(wanted)


def holds(dtype: torch.dtype, values: Tensor) -> bool:
    """Tell whether `dtype` can hold `values`: numbers that are whole, or real, if it is so."""
    if torch.can_cast(values.dtype, dtype):
        return True
    if values.is_complex():
        return False
    return torch.equal(values.to(dtype).to(values.dtype), values)


@cache
def torch_type(dtype: int) -> torch.dtype:
    """Return torch's element type for that of ONNX."""
    found = getattr(torch, BY_NUMBER[dtype].name)
    assert isinstance(found, torch.dtype)
    return found
