"""Losses of PyTorch that look at values or lose a gradient where they are recorded.

They stand in for PyTorch's own meanwhile.
"""

from __future__ import annotations

import math

import torch
from torch.nn._reduction import legacy_get_string


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
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    fixed = var.detach()
    v = fixed.clamp(min=eps) + (var - fixed)
    loss = 0.5 * (torch.log(v) + (input - target) ** 2 / v)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return _reduced(loss, reduction)


def multi_margin_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """Sum over c != t of w_t max(0, margin - x_t + x_c)^p / C; no gradient comes where that is 0.

    Shapes: `input` [N, C] or [C], `target` [N] or a scalar, `weight` [C]. PyTorch records it with a
    limit instead, at which gradients pass. Raises `ValueError` for other powers and reductions.
    """
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if size_average is not None or reduce is not None:
        reduction = legacy_get_string(size_average, reduce)
    alone = target.dim() == 0
    scores, labels = input.reshape(-1, input.shape[-1]), target.reshape(-1)
    away = margin - scores.gather(1, labels.unsqueeze(1)) + scores
    away = torch.where(away > 0, away, 0)
    terms = away if p == 1 else away * away
    if weight is not None:
        terms = terms * weight[labels].unsqueeze(1)
    classes = scores.shape[1]
    own = torch.arange(classes, device=labels.device) == labels.unsqueeze(1)
    losses = torch.where(own, 0, terms).sum(1) / classes
    return _reduced(losses.squeeze(0) if alone and input.dim() == 1 else losses, reduction)


def _reduced(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()
