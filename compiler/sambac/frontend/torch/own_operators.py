"""Operators of this toolchain's that recordings have: what PyTorch has no operator for.

    d = incoming_gradient(y, 0)                  # stands for the gradient of y
    y' = own_gradient([y], [d], [x], [dx])       # y, whose gradient d goes to x as dx
    dx = derivative([y], [d], [x])               # what autograd.grad gives inside forward

The first two become those of `sambac.graph.own_gradients`; `programs.derivatives` writes the third
out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.library.custom_op("sambac::incoming_gradient", mutates_args=())
def incoming_gradient(y: Tensor, number: int) -> Tensor:
    """Stand for the gradient of `y`, result `number` of a function."""
    return torch.zeros_like(y)


@torch.library.custom_op("sambac::own_gradient", mutates_args=())
def own_gradient(
    results: Sequence[Tensor],
    incoming: Sequence[Tensor],
    sources: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    """Return `results`, whose gradients, `incoming`, go to `sources` as `gradients`."""
    return [result.clone() for result in results]


@torch.library.custom_op("sambac::derivative", mutates_args=())
def derivative(
    results: Sequence[Tensor], incoming: Sequence[Tensor], sources: Sequence[Tensor]
) -> list[Tensor]:
    """Return the gradients of `sources`, where those of `results` are `incoming`."""
    return [torch.zeros_like(source) for source in sources]


@incoming_gradient.register_fake
def _(y: Tensor, number: int) -> Tensor:
    return torch.empty_like(y)


@own_gradient.register_fake
def _(
    results: Sequence[Tensor],
    incoming: Sequence[Tensor],
    sources: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    return [torch.empty_like(result) for result in results]


@derivative.register_fake
def _(
    results: Sequence[Tensor], incoming: Sequence[Tensor], sources: Sequence[Tensor]
) -> list[Tensor]:
    return [torch.empty_like(source) for source in sources]
