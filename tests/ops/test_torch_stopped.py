"""What rectifiers, maxima and norms of a batch stop on the way back, beside PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_points import COMPARED, Comparison, Point

T = torch.tensor

# The first row is stopped as a whole, and a root of its sum is infinitely steep.
ROWS = T([[-1.0, -2.0, -0.5], [1.0, 2.0, -1.0]])
LINE = T([[[-1.0, -2.0, -0.5, 1.0, 2.0, -1.0]]])
# One window whose maxima are all equal, beside windows in which nothing is above zero.
TIES = F.pad(torch.full((2, 1, 2, 2), 2.0), (0, 2, 0, 2), value=-1.0)


def _ones(like: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=like.dtype)


def _read_twice(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return what a U-Net has of a rectifier: its largest numbers, and all of them."""
    y = F.relu(x)
    return torch.cat([F.max_pool2d(y, size).flatten(), y.flatten()])


def _recurrent(x: torch.Tensor) -> torch.Tensor:
    """Return roots of variances of what a recurrent layer gives, of which a row is zeros."""
    layer = nn.RNN(3, 3, nonlinearity="relu", batch_first=True).to(x.dtype)
    for weight in layer.parameters():
        nn.init.zeros_(weight)
    nn.init.eye_(layer.weight_ih_l0)
    return layer(x[:, None])[0].var(-1).sqrt()


def _batch_norm(x: torch.Tensor, kind: str) -> list[torch.Tensor]:
    newer, old = torch.ops.aten._batch_norm_with_update, torch.native_batch_norm
    operator, modes = (newer, ()) if kind == "newer" else (old, (kind != "settled",))
    zeros, ones = x.new_zeros(2), x.new_ones(2)
    running = (None, None) if kind == "alone" else (zeros.clone(), ones.clone())
    results = operator(x, ones, zeros, *running, *modes, 0.1, 1e-5)[:3]
    return [result + 0 * x.sum() for result in results]


GROUPS: dict[str, list[Point]] = {
    "roots of products with constants": [
        Point("matmul", lambda x: (F.relu(x) @ _ones(x, 3, 2)).sqrt(), (ROWS,)),
        Point("linear", lambda x: F.linear(F.relu(x), _ones(x, 2, 3)).sqrt(), (ROWS,)),
        Point("norm", lambda x: (F.relu(x) @ _ones(x, 3, 2)).norm(dim=1), (ROWS,)),
        Point("einsum", lambda x: torch.einsum("ij->i", F.relu(x)).sqrt(), (ROWS,)),
        Point("conv", lambda x: F.conv1d(F.relu(x), _ones(x, 1, 1, 2)).sqrt(), (LINE,)),
        Point("limits", lambda x: (x.clamp(0, 6) @ _ones(x, 3, 2)).sqrt(), (ROWS,)),
        Point("maxima", lambda x: (x.maximum(0 * x) @ _ones(x, 3, 2)).sqrt(), (ROWS,)),
        Point("log of shares", lambda x: (F.relu(x).softmax(1) * T([0.0, 1, 1]).to(x)).log(),
              (ROWS,)),
    ],
    "recurrent": [Point("rectified", _recurrent, (ROWS,))],
    "read twice": [
        Point("tiles", lambda x: _read_twice(x, 2), (TIES,)),
        Point("large tiles", lambda x: _read_twice(x, 2), (TIES.repeat(1, 3, 9, 9),)),
    ],
    "statistics of a batch": [
        Point(f"{kind} {at}", lambda x, at=at, kind=kind: _batch_norm(x, kind)[at],
              (LINE.repeat(2, 2, 1),))
        for at in range(3) for kind in ("older", "newer", "settled", "alone")
    ] + [
        Point(f"groups {read}", lambda x, read=read: torch.cat([
            torch.native_group_norm(x, None, None, 4, 2, 6, 1, 1e-5)[at].flatten() for at in read]),
              (LINE.repeat(4, 2, 1).cumsum(0),))
        for read in ((0, 1), (0, 2), (1, 2), (0, 1, 2))
    ],
    "steep": [
        Point(f"elu {alpha}", lambda x, alpha=alpha: F.elu(x, alpha), (ROWS,))
        for alpha in (200.0, 1e4, 1e9, -1e9)
    ],
}  # fmt: skip


@COMPARED
@pytest.mark.parametrize("name", GROUPS)
def test_what_is_stopped_has_no_gradient(name: str, compared: Comparison) -> None:
    assert compared(GROUPS[name]) == []
