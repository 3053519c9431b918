"""Losses at ties, zeros and large numbers, of rows and of nothing, beside PyTorch."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
import torch.nn.functional as F
from torch_points import COMPARED, Comparison, Point

T = torch.tensor
ROWS = T([[3.0, 3, 1], [-1, -1, -1], [0, -0.0, -4], [1e4, -1e4, 0], [0, 0, 0], [2, 0, 0]])
NONE = torch.zeros(0, 3)

_LOSSES = {
    "cross entropy": lambda x, r: F.cross_entropy(x, x.detach().argmax(1), reduction=r),
    "cross entropy, smoothed": lambda x, r: F.cross_entropy(
        x, x.detach().argmax(1), reduction=r, label_smoothing=0.1
    ),
    "divergence": lambda x, r: F.kl_div(x, x.detach().clamp(min=0), reduction=r),
    "divergence of logarithms": lambda x, r: F.kl_div(x, x.detach(), reduction=r, log_target=True),
    "gaussian": lambda x, r: F.gaussian_nll_loss(x, x.flip(0), x.abs(), reduction=r),
    "hinge of embeddings": lambda x, r: F.hinge_embedding_loss(
        x, torch.where(x.detach() > 0, 1.0, -1.0), reduction=r
    ),
    "huber": lambda x, r: F.huber_loss(x, x.flip(0), reduction=r),
    "l1": lambda x, r: F.l1_loss(x, x.flip(0), reduction=r),
    "logits": lambda x, r: F.binary_cross_entropy_with_logits(
        x, (x.detach() > 0).to(x.dtype), reduction=r
    ),
    "poisson": lambda x, r: F.poisson_nll_loss(
        x.clamp(max=5), x.detach().abs(), full=True, reduction=r
    ),
    "smooth l1": lambda x, r: F.smooth_l1_loss(x, x.flip(0), reduction=r),
    "soft margins": lambda x, r: F.soft_margin_loss(x, x.detach().sign(), reduction=r),
    "soft margins of labels": lambda x, r: F.multilabel_soft_margin_loss(
        x, (x.detach() > 0).to(x.dtype), reduction=r
    ),
    "squares": lambda x, r: F.mse_loss(x, x.flip(0), reduction=r),
    "triplets": lambda x, r: F.triplet_margin_loss(x, x.flip(0), x.flip(1), reduction=r),
    "triplets of one": lambda x, r: F.triplet_margin_loss(x, x.detach(), x.detach(), reduction=r),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss by both")
@COMPARED
@pytest.mark.parametrize("rows", [ROWS, NONE], ids=["rows", "none"])
def test_losses(rows: torch.Tensor, compared: Comparison) -> None:
    points = [
        Point(f"{name}, {r}", lambda x, loss=loss, r=r: loss(x, r), (rows,))
        for name, loss in _LOSSES.items()
        for r in ("none", "mean", "sum")
    ]
    assert compared(points) == []


_P, _T = (
    side.reshape(-1).contiguous()
    for side in torch.meshgrid(
        T([0.0, 1e-30, 0.25, 1 - 6e-8, 1.0]), T([0.0, 0.3, 1.0]), indexing="ij"
    )
)
_A, _B = (
    side.reshape(-1).contiguous()
    for side in torch.meshgrid(
        *[T([-inf, -2.0, -1.0, -0.0, 0.0, 1e-30, 0.5, 1.0, inf, nan])] * 2, indexing="ij"
    )
)
_OF_TARGETS = {
    "binary": (lambda x, t: F.binary_cross_entropy(x, t, reduction="none"), _P, _T),
    "divergence": (lambda x, t: F.kl_div(x, t, reduction="none"), _A, _B),
    "divergence of logarithms": (
        lambda x, t: F.kl_div(x, t, reduction="none", log_target=True), _A, _B
    ),
    "divergence, masked": (
        lambda x, t: F.kl_div(x, t, reduction="none") * (t > 0), _A, _B
    ),
    "clamped above": (lambda x, t: torch.clamp(x, max=t), _A, _B),
    "clamped below": (lambda x, t: torch.clamp(x, min=t), _A, _B),
    "clamped between": (lambda x, t: torch.clamp(x, t.clamp(max=0.5), T(0.5)), _A, _B),
    "gaussian": (lambda x, t: F.gaussian_nll_loss(x, t, _T, reduction="none"), _P, _T),
    "hinge": (lambda x, t: F.hinge_embedding_loss(
        x, torch.where(t.detach() > 0, 1.0, -1.0), reduction="none"), _A, _B
    ),
    "huber": (lambda x, t: F.huber_loss(x, t, reduction="none"), _A, _B),
    "l1": (lambda x, t: F.l1_loss(x, t, reduction="none"), _A, _B),
    "logits": (
        lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="none"), _A, _B
    ),
    "margins": (lambda x, t: F.margin_ranking_loss(
        x, t, torch.ones_like(x), margin=0.25, reduction="none"), _A, _B
    ),
    "poisson": (lambda x, t: F.poisson_nll_loss(x, t, reduction="none"), _A, _B),
    "smooth l1": (lambda x, t: F.smooth_l1_loss(x, t, reduction="none"), _A, _B),
    "soft labels": (F.cross_entropy, ROWS, ROWS.softmax(1)),
    "xlogy": (torch.xlogy, _A, _B),
    "xlogy, masked": (lambda x, t: torch.where(t > 0, torch.xlogy(x, t), 0), _A, _B),
    "xlogy, times 0": (lambda x, t: torch.xlogy(x, t) * 0, _A, _B),
    "xlog1py": (torch.special.xlog1py, _A, _B),
    "xlog1py, masked": (lambda x, t: torch.special.xlog1py(x, t) * (t > -1), _A, _B),
}  # fmt: skip


@COMPARED
def test_gradients_of_targets_too(compared: Comparison) -> None:
    """Also where a result or a gradient is infinite or no number."""
    points = [Point(name, f, (x, t), whole=True) for name, (f, x, t) in _OF_TARGETS.items()]
    assert compared(points) == []
