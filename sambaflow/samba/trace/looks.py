"""What of torch looks at values, which tracing has not; what they look for changes no shape.

The compiler has stand-ins of its own for them, which compute: they are not here because loading the
compiler takes longer than tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import functional
from torch.nn.modules import transformer


@contextmanager
def without_looks() -> Iterator[None]:
    """Keep parts of torch from looking at values.

    Transformers look whether a mask happens to be causal, distributions whether their parameters
    are valid.
    """
    replaced: tuple[tuple[object, str, object], ...] = (
        (transformer, "_detect_is_causal_mask", _is_said_to_be_causal),
        (Distribution, "_validate_args", False),
    )
    before = [getattr(owner, name) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(replaced, before, strict=True):
            setattr(owner, name, value)


def _is_said_to_be_causal(
    mask: Tensor | None, is_causal: bool | None = None, size: int | None = None
) -> bool:
    return is_causal is True


def _gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Return a tensor of the shape of this loss, of which torch asks whether `var` is negative."""
    if not isinstance(var, Tensor):
        var = torch.full_like(input, var)
    if var.shape == input.shape[:-1] != input.shape:
        var = var.unsqueeze(-1)
    loss = (input - target) / var
    return loss if reduction == "none" else loss.sum()


STAND_INS: Mapping[Callable[..., object], Callable[..., object]] = {
    functional.gaussian_nll_loss: _gaussian_nll_loss
}
"""Functions of torch, and what has results of the same shapes and types."""
