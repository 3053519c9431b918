"""Choices and repetition inside a module: what trains behind them, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_runs import run_training, training_source

from sambac import CompileOptions, compile
from sambac.errors import CompileError


class _Branching(nn.Module):
    """A choice by a tensor, before what trains or around it, with a detach in one branch."""

    def __init__(self, *, around: bool) -> None:
        super().__init__()
        self.layer, self.around = nn.Linear(3, 3), around

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.layer if self.around else torch.sin

        def without_gradients(t: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return t.detach() - 1

        other = (lambda t: t.detach() - 1) if self.around else without_gradients
        chosen = torch.cond(x.sum() > 0, lambda t: inner(t) * 2, other, (x,))
        return (chosen if self.around else self.layer(chosen)).square().mean()


@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_before_what_trains(sign: int) -> None:
    """PyTorch makes an autograd.Function of it, which is not the user's."""
    module, x = _Branching(around=False), sign * torch.rand(2, 3)
    got = run_training(training_source(module, x), x)["output"]
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-5)


def test_control_flow_around_what_trains_is_refused() -> None:
    options = CompileOptions(train=True)
    where = r"at test_torch_control_flow\.py:\d+ \(control flow inside what is trained\)"
    with pytest.raises(CompileError, match=rf"If '\w+' {where}"):
        compile(_Branching(around=True), options, inputs=(torch.rand(2, 3),))


class _Repeating(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.layer, self.reentrant = nn.Linear(3, 3), reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return checkpoint(self.layer, y, use_reentrant=self.reentrant)


def test_checkpoints_of_one_kind_are_recorded() -> None:
    module, x = _Repeating(reentrant=False), torch.rand(2, 3)
    source = training_source(module, x)
    np.testing.assert_allclose(
        run_training(source, x)["output"], module(x).detach().numpy(), rtol=1e-5
    )
    with pytest.raises(CompileError, match="give it use_reentrant=False"):
        training_source(_Repeating(reentrant=True), x)
