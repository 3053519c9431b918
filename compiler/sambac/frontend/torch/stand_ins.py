"""Functions of PyTorch that cannot be recorded as they are written."""

from __future__ import annotations

import math

import torch


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """(log v + (input - target)^2 / v) / 2 with v = max(var, eps); `full` adds log(2 pi) / 2.

    Shapes: `var` as `input`, or without its last axis, or broadcast to it. PyTorch looks whether
    variances are negative, which depends on values, and clamps them in place with gradients off:
    those of v go to `var` where it is clamped too. Raises `ValueError` for other reductions.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    fixed = var.detach()
    v = fixed.clamp(min=eps) + (var - fixed)
    loss = 0.5 * (torch.log(v) + (input - target) ** 2 / v)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()
