"""Logarithms of sigmoids far below 0, where onnxruntime's sigmoids are 0."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from near import assert_near
from torch import nn
from torch.nn import functional
from torch_runs import Lambda

import sambac
import sambarun

_X = torch.tensor([-80.0, -40.0, -20.0, -17.0, -8.0, 0.0, 8.0, 17.0])
_LOSSES = {
    "logarithm": lambda x: torch.log(torch.sigmoid(x)),
    "loss of probabilities": lambda x: (
        -functional.binary_cross_entropy(torch.sigmoid(x), torch.ones_like(x), reduction="none")
    ),
}


@pytest.mark.parametrize("name", _LOSSES)
def test_they_are_numbers(name: str) -> None:
    with sambarun.load(sambac.compile(Lambda(_LOSSES[name]), inputs=(_X,))) as executable:
        (port,) = executable.program.graphs[0].inputs
        (found,) = executable.run({port.name: _X.numpy()}).values()
    assert_near(found, functional.logsigmoid(_X.double()).numpy())


_KEPT_FROM_ZERO = {
    "added": lambda s: torch.log(s + 1e-8),
    "added to": lambda s: torch.log(1e-12 + s),
    "cut": lambda s: s.clamp(1e-7, 1 - 1e-7).log(),
    "cut below": lambda s: torch.log(s.clamp_min(1e-10)),
    "larger": lambda s: torch.log(torch.maximum(s, torch.tensor(1e-9))),
}


@pytest.mark.parametrize("name", _KEPT_FROM_ZERO)
def test_small_numbers_keep_their_meaning_beside_sigmoids(name: str) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(8))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            terms = _KEPT_FROM_ZERO[name](torch.sigmoid(x + self.shift))
            return {"loss": terms.sum(), "terms": terms}

    x = torch.tensor([-80.0, -25.0, -20.0, -17.0, -15.0, -8.0, 0.0, 5.0])
    exact = Loss().double()
    wanted = exact(x.double())
    wanted["loss"].backward()
    options = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(sambac.SGD(lr=1.0),))
    with sambarun.load(sambac.compile(Loss(), options, inputs=(x,))) as executable:
        terms = executable.run({"x": x.numpy()})["terms"]  # all of a step
        found = -executable.state()["shift"]
    assert_near(terms, wanted["terms"].detach().numpy())
    assert exact.shift.grad is not None
    assert_near(found, exact.shift.grad.numpy())


@pytest.mark.parametrize("target", [0.0, 0.3, 1.0])
def test_losses_of_small_probabilities_have_gradients(target: float) -> None:
    """Where PyTorch has them in float32: beside 1 there is no room for what is left of it."""

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(10))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return nn.BCELoss(reduction="sum")(torch.sigmoid(x + self.shift), y)

    x = torch.tensor([-60.0, -26.0, -20.0, -18.5, -12.0, -8.0, -1.0, 1.0, 20.0, 40.0])
    y = torch.full((10,), target)
    reference = Loss()
    reference(x, y).backward()
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    with sambarun.load(sambac.compile(Loss(), options, inputs=(x, y))) as executable:
        executable.step({"x": x.numpy(), "y": y.numpy()})
        found = -executable.state()["shift"]
    assert reference.shift.grad is not None
    np.testing.assert_allclose(found, reference.shift.grad.numpy(), rtol=1e-5, atol=2e-7)


def test_their_gradients_are_numbers() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.log(torch.sigmoid(x * self.w)).sum()

    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    with sambarun.load(sambac.compile(Scaled(), options, inputs=(_X,))) as executable:
        executable.step({"x": _X.numpy()})
        found = 1 - executable.state()["w"].astype(np.float64)
    x = _X.double()
    assert found == pytest.approx((x * torch.sigmoid(-x)).numpy(), rel=1e-4, abs=1e-6)
