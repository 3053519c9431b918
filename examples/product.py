"""One matrix product, the worked example of docs/concepts.md: `sambac compile product.py:model`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SIZE = 1024


class Product(nn.Module):
    """The product of two square matrices."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return a @ b."""
        return a @ b


def model() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """Return the module, and matrices in BF16 to call it with."""
    a, b = (torch.zeros(SIZE, SIZE, dtype=torch.bfloat16) for _ in range(2))
    return Product(), (a, b)
