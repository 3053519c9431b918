"""Numbers in a graph."""

from __future__ import annotations

import torch

from .apply import operator


@operator
def Constant(*, constant: float) -> torch.Tensor:
    """Return a tensor of one element."""
    return torch.tensor([constant], dtype=torch.float32)
