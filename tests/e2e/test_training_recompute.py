"""`--recompute`: much less memory for activations of a deep transformer, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from training_run import feeds

import sambac
import sambarun
from benchmarks.models import training as models
from benchmarks.training_memory import activation_peak


@pytest.fixture(scope="module", params=[4, pytest.param(12, marks=pytest.mark.long)])
def programs(request):
    """Return a decoder with so many layers, compiled without and with recomputing."""
    found = []
    for recompute in (False, True):
        torch.manual_seed(0)
        trainee = models.decoder(8, 64, 128, request.param, 4, 1000)
        options = sambac.CompileOptions(
            train=True, optimizers=(sambac.AdamW(lr=1e-3),), recompute=recompute
        )
        found.append(sambac.compile(trainee.module, options, inputs=trainee.batch(0)))
    return found


def test_it_takes_three_tenths_off_the_planned_activations(programs):
    kept, recomputed = map(activation_peak, programs)
    assert recomputed <= 0.7 * kept


def test_the_numbers_stay(programs):
    batch = models.decoder(8, 64, 128, 1, 4, 1000).batch(1)
    states = []
    for program in programs:
        with sambarun.load(program) as executable:
            losses = [executable.step(feeds(program, batch)) for _ in range(2)]
            states.append((losses, executable.state()))
    (kept_losses, kept), (losses, recomputed) = states
    for one, other in zip(kept_losses, losses, strict=True):
        np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=1e-5)
    for name, array in kept.items():
        np.testing.assert_allclose(recomputed[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


class Drawing(nn.Module):
    """A sum of squares of draws and weights, of degree 2 in the weights, by way of cheap steps."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 7 * 500).reshape(7, 500))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drawn = torch.stack(
            [
                torch.rand_like(x),
                torch.randn_like(x),
                torch.empty_like(x).uniform_(-2, 1),
                torch.normal(x, 2 * x),
                torch.bernoulli(0.5 * x),
                torch.empty_like(x).exponential_(),
                functional.dropout(x, 0.5),
            ]
        )
        scaled = functional.leaky_relu(functional.leaky_relu(self.weight * drawn, 0.5).abs() * -1)
        return (scaled - scaled.abs()).square().sum()


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_draws_are_not_drawn_again(level: str) -> None:
    """sum(w * dL/dw) = 2 L, after Euler, if and only if both passes have the same numbers."""
    options = sambac.CompileOptions(train=True, recompute=True, level=level)
    x = np.ones(500, np.float32)
    program = sambac.compile(Drawing(), options, inputs=(torch.from_numpy(x),))
    losses = []
    with sambarun.load(program) as executable:
        for _ in range(2):
            weight = executable.state()["weight"].astype(np.float64)
            losses.append(float(executable.step({"x": x})["output"]))
            gradient = executable.read("weight__grad")["weight__grad"]
            np.testing.assert_allclose((weight * gradient).sum(), 2 * losses[-1], rtol=1e-4)
    assert losses[0] != losses[1]
