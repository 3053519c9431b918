"""Between torch tensors and the arrays of the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pef.dtypes import BY_NUMBER, numpy_dtype

from .errors import HostError

_BITS = {1: "uint8", 2: "uint16"}
"""Numpy's types for the bits of an element, by its bytes."""


def to_array(tensor: Tensor) -> np.ndarray:
    """Return the values of `tensor` as sambarun takes them, where they are if that is possible."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = dense(tensor.detach() if tensor.requires_grad else tensor)
        if plain.dtype is torch.bfloat16:
            return plain.contiguous().view(torch.uint16).numpy().view(_bfloat16())
        return plain.numpy()


def dense(tensor: Tensor) -> Tensor:
    """Return `tensor` with its numbers in memory: what is a mark to torch, a minus, is carried out.

    Raises `HostError` for layouts that do not hold a number for each element.
    """
    quantized, nested = tensor.is_quantized, tensor.is_nested
    if quantized or nested or tensor.layout is not torch.strided:
        called, cure = (
            str(tensor.layout).removeprefix("torch._").removeprefix("torch."),
            "to_dense()",
        )
        if quantized:
            called, cure = "quantized", "dequantize()"
        elif nested:
            called, cure = "nested", "to_padded_tensor(0.0)"
        raise HostError(
            f"a tensor of the layout {called} is given, and the device takes a number for each "
            f"element; give tensor.{cure}"
        )
    return tensor.resolve_conj().resolve_neg()


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


def copied(results: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return copies of results that a run has left in the device's memory, where they are read.

    What is no tensor (a list, None) is not in that memory.
    """
    return {
        name: result.copy() if isinstance(result, np.ndarray) else result
        for name, result in results.items()
    }


def holds(dtype: torch.dtype, values: Tensor) -> bool:
    """Tell whether `dtype` can hold `values`: numbers that are whole, or real, if it is so.

    Of numbers with a point digits may be lost, but none that is finite is beyond the largest.
    """
    if values.dtype is dtype or values.is_complex():
        return torch.can_cast(values.dtype, dtype)
    if dtype.is_floating_point or dtype.is_complex:
        wide = values.double()
        return not bool((wide.isfinite() & (wide.abs() > torch.finfo(dtype).max)).any())
    return torch.equal(values.to(dtype).to(values.dtype), values)


@cache
def torch_type(dtype: int) -> torch.dtype:
    """Return torch's element type for that of ONNX."""
    found = getattr(torch, BY_NUMBER[dtype].name)
    assert isinstance(found, torch.dtype)
    return found
