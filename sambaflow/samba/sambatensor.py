"""The tensors of SambaFlow, where applications import them from."""

from __future__ import annotations

from sambaflow.samba.tensors.conversion import from_torch_tensor, to_torch
from sambaflow.samba.tensors.tensor import SambaTensor

__all__ = ["SambaTensor", "from_torch_tensor", "to_torch"]
