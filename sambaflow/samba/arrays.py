"""Between torch tensors and the arrays of the runtime."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .tensor import SambaTensor

if TYPE_CHECKING:
    import numpy as np


def named_tensor(value: Tensor, name: str) -> SambaTensor:
    """Return `value` as a SambaTensor called `name`, faster than its constructor."""
    found = value.as_subclass(SambaTensor)
    found.sn_name = name
    return found


def to_array(tensor: Tensor) -> np.ndarray:
    """Return the values of `tensor` as sambarun takes them, where they are if that is possible."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach() if tensor.requires_grad else tensor
        if plain.dtype is torch.bfloat16:
            plain = plain.contiguous().view(torch.uint16)
        return plain.numpy()


def from_array(array: np.ndarray, dtype: int) -> Tensor:
    """Return `array`, of the element type `dtype` of ONNX, as a tensor that shares its memory."""
    tensor = torch.from_numpy(array)
    wanted = torch_type(dtype)
    return tensor if tensor.dtype is wanted else tensor.view(wanted)


@cache
def torch_type(dtype: int) -> torch.dtype:
    """Return torch's element type for that of ONNX."""
    from pef.dtypes import BY_NUMBER

    found = getattr(torch, BY_NUMBER[dtype].name)
    assert isinstance(found, torch.dtype)
    return found
