"""Tensors where checkpoints look for them: a pickle names the module that its classes were in."""

from __future__ import annotations

import torch

from sambaflow.samba.tensors.tensor import SambaParameter, SambaTensor, rebuild

__all__ = ["SambaParameter", "SambaTensor", "rebuild"]

torch.serialization.add_safe_globals(
    [(known, f"{__name__}.{known.__name__}") for known in (rebuild, SambaTensor, SambaParameter)]
)
