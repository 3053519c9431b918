"""`--recompute` on a deep transformer: much less memory for activations, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
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
