"""Numbers in a graph."""

from __future__ import annotations

import torch

from pybuda.tensor import Tensor

from .apply import apply


def Constant(name: str, *, constant: float) -> Tensor:
    """Return a tensor of one element."""
    return apply(name, lambda: torch.tensor([constant], dtype=torch.float32))
