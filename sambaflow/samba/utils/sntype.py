"""Element types of the device."""

from __future__ import annotations

from enum import Enum

import torch

__all__ = ["SNType"]


class SNType(Enum):
    """The element types that an operator can be asked for; the value is torch's type."""

    BF16 = torch.bfloat16
    FP16 = torch.float16
    FP32 = torch.float32
    INT8 = torch.int8
    INT16 = torch.int16
    INT32 = torch.int32
    INT64 = torch.int64
    UINT8 = torch.uint8
    UINT16 = torch.uint16
    UINT32 = torch.uint32
    BOOL = torch.bool

    @staticmethod
    def to_torch_reference_type(kind: SNType) -> torch.dtype:
        """Return the type that torch computes `kind` in: a wider one where it lacks arithmetic."""
        return _WITH_ARITHMETIC.get(kind, kind.value)


_WITH_ARITHMETIC = {SNType.UINT16: torch.int32, SNType.UINT32: torch.int64}
"""Types of torch with all operations, for those that have few."""
