"""SambaTensors from sizes: the creation functions of torch, with names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from .tensor import SambaTensor


def _named(
    tensor: torch.Tensor,
    name: str | None,
    batch_dim: int | None,
    named_dims: Iterable[str | None] | None,
    sized_dims: Iterable[str | None] | None,
) -> SambaTensor:
    return SambaTensor(
        tensor, name=name, batch_dim=batch_dim, named_dims=named_dims, sized_dims=sized_dims
    )
