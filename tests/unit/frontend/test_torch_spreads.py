"""Deviations of what masks select, and selections of selections, in training as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from two_steps import require_two_steps_of_torch

import sambac
from sambac.errors import CompileError

_X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
_Some = Callable[[Tensor, Tensor], Tensor]


class _Loss(nn.Module):
    def __init__(self, function: _Some) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, x * self.w)


def _of_two_masks(x: Tensor, y: Tensor) -> Tensor:
    return (y - 0.3).square()[(x > -0.5) & (x < 1)].std()


def _beside_mean(x: Tensor, y: Tensor) -> Tensor:
    spread, mean = torch.std_mean(y[x > 0])
    return spread + mean


def _normalised(x: Tensor, y: Tensor) -> Tensor:
    z = y[x > 0]
    return ((z - z.mean()) / (z.std() + 1e-3)).pow(3).mean()


def _of_both(x: Tensor, y: Tensor) -> Tensor:
    return y[x > 0].var() + y[x <= 0].std(correction=0)


def _of_rows(x: Tensor, y: Tensor) -> Tensor:
    z = y[x.sum(1) > -1]
    return z.std(0).sum() + z.var(1, keepdim=True).mean() + z.std() + z.var(0, False).sum()


def _of_selected(x: Tensor, y: Tensor) -> Tensor:
    z, t = y[x > -0.5], x[x > -0.5]
    return z[z > 0.1].mean() + z[z < 0.5].square().sum() + z[t > 0].std()


def _of_selected_rows(x: Tensor, y: Tensor) -> Tensor:
    z = y[x.sum(1) > -1]
    return z[z.sum(1) > -0.5].square().mean() + z[z[:, 0] > 9].square().sum()


def _thrice(x: Tensor, y: Tensor) -> Tensor:
    z = y[x > -1]
    z = z[z > -0.8]
    return z[z < 0.8].square().mean()


_LOSSES = (
    *(_of_two_masks, _beside_mean, _normalised, _of_both, _of_rows),
    *(_of_selected, _of_selected_rows, _thrice),
)


@pytest.mark.filterwarnings("ignore:(std|var)")
@pytest.mark.parametrize("loss", _LOSSES)
def test_training(loss: _Some) -> None:
    require_two_steps_of_torch(_Loss(loss), _X)


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("correction", [0, 1])
def test_few_that_are_selected(count: int, correction: int) -> None:
    """Of none there is no deviation, of one and of equal ones it may be 0, without a slope."""
    x = torch.tensor([[2.0] * count + [-1.0] * (4 - count)])
    module = _Loss(lambda x, y: y[x > 0].std(correction=correction) + y.square().sum())
    nn.init.ones_(module.w)
    require_two_steps_of_torch(module, x)


@pytest.mark.parametrize("least", [0, 9])
def test_nothing_that_is_selected_twice(least: float) -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        z = y[x > least]
        return z[z > 9].log().sum() + y.square().sum()

    require_two_steps_of_torch(_Loss(loss), _X)


def test_a_mask_that_is_computed_twice_is_refused_with_a_cure() -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(y[x > 0], x[x > 0])

    with pytest.raises(CompileError, match="let one mask that is computed once select both"):
        sambac.compile(_Loss(loss), sambac.CompileOptions(train=True), inputs=(_X,))
