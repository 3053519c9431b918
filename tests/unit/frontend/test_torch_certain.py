"""Layers that are left out at random: with rates that leave one answer, and with others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_runs import run_training, training_source

from sambac.errors import CompileError

Question = Callable[[float], object]


class _Skipping(nn.Module):
    """Leaves its second layer out where `question` is answered by yes for `rate`."""

    def __init__(self, question: Question, rate: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.question, self.rate = question, rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        skips = self.training and self.question(self.rate)
        return hidden if skips else self.second(hidden)


SKIPS: dict[str, Question] = {
    "<": lambda rate: torch.rand([]) < rate,
    "<=": lambda rate: torch.rand(1) <= rate,
    "not >": lambda rate: not torch.rand(1) > rate,
    "not >=": lambda rate: not (torch.rand(1) >= rate),
    "turned": lambda rate: rate > torch.rand(1),
    "function": lambda rate: torch.lt(torch.rand(1), rate),
    "item": lambda rate: (torch.rand(1) < rate).item(),
    "in place": lambda rate: torch.empty(1).uniform_() < rate,
    "like": lambda rate: torch.rand_like(torch.ones(1)) < rate,
}


@pytest.mark.parametrize("rate", [0, 1.0])
@pytest.mark.parametrize("name", SKIPS)
def test_layers_that_are_always_or_never_left_out(name: str, rate: float) -> None:
    module, x = _Skipping(SKIPS[name], rate), torch.randn(2, 3)
    hidden = module.first(x)
    want = hidden if rate else module.second(hidden)
    got = run_training(training_source(module, x), x)["output"]
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-6)


def _written_in_a_list(rate: float) -> torch.Tensor:
    draw = torch.rand(1)
    torch._foreach_mul_([draw], 5)
    return draw > rate * 2


def _written_as_statistics(rate: float) -> torch.Tensor:
    mean = torch.rand(1)
    functional.batch_norm(torch.ones(2, 1), mean, torch.ones(1), training=True)
    return mean < rate * 0


OPEN: dict[str, Question] = {
    "rate": lambda rate: torch.rand(1) < rate,
    "moved": lambda rate: torch.rand(1) + 0.5 < rate * 2,
    "written": lambda rate: torch.rand(1).mul_(2).sub_(1) < rate * 0,
    "written in a list": _written_in_a_list,
    "written as statistics": _written_as_statistics,
    "other limits": lambda rate: torch.empty(1).uniform_(-1, 1) < rate * 0,
    "normal": lambda rate: torch.randn(1) < rate * 0,
    "a tensor": lambda rate: torch.rand(1) < torch.tensor(rate),
}


@pytest.mark.parametrize("name", OPEN)
def test_layers_that_are_left_out_now_and_then_are_refused(name: str) -> None:
    with pytest.raises(CompileError, match="control flow depends on the values of tensors"):
        training_source(_Skipping(OPEN[name], 0.5), torch.randn(2, 3))


def test_a_number_of_a_draw_decides_nothing() -> None:
    module = _Skipping(lambda rate: torch.rand(1).item() < rate, 0.5)
    with pytest.raises(CompileError, match="control flow depends on the values of tensors"):
        training_source(module, torch.randn(2, 3))


@pytest.mark.parametrize(
    "question", [lambda rate: torch.rand(3) < rate, lambda rate: (torch.rand(3) < rate).item()]
)
def test_several_draws_decide_nothing(question: Question) -> None:
    with pytest.raises(CompileError, match=r"[Tt]ensor with (more than one value|3 elements)"):
        training_source(_Skipping(question, 0), torch.randn(2, 3))
