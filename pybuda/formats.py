"""Which data format holds which type of torch."""

from __future__ import annotations

import torch

from ._C import DataFormat
from .errors import PyBudaError

_FORMATS = {
    torch.float16: DataFormat.Float16,
    torch.bfloat16: DataFormat.Float16_b,
    torch.float32: DataFormat.Float32,
    torch.int8: DataFormat.Int8,
    torch.int32: DataFormat.Int32,
    torch.bool: DataFormat.Bfp2_b,
    torch.int64: DataFormat.Int32,
}
"""64-bit integers are indices: the device keeps them exact, and calls them Int32."""


def format_of(dtype: torch.dtype) -> DataFormat:
    """Return the format in which the device gets a torch tensor. Raises `PyBudaError` for none."""
    found = _FORMATS.get(dtype)
    if found is None:
        known = ", ".join(str(known).removeprefix("torch.") for known in _FORMATS)
        raise PyBudaError(f"the device has no format for {dtype}; it takes {known}")
    return found
