"""Whole models train as in PyTorch: after equal steps the weights are as close to the truth.

The truth is float64 PyTorch. Rounding grows with the steps, here as there: the error may be three
times that of float32 PyTorch, and 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import published_models
import pytest
import torch
from benchmarks.models import training as models
from benchmarks.models.training import Trainee
from training_run import compare, train_here

import sambac

MODELS: dict[str, Callable[[], Trainee]] = {
    "cnn": models.cnn,
    "decoder": models.decoder,
    "lstm": models.lstm,
    "mlp": models.mlp,
    "unet": models.unet,
    **published_models.MODELS,
}
Parameters = Sequence[torch.nn.Parameter]


def _sgd(parameters: Parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def _adamw(parameters: Parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


OPTIMIZERS = {
    "sgd": (sambac.SGD(lr=0.05, momentum=0.9), _sgd),
    "adamw": (sambac.AdamW(lr=1e-3), _adamw),
}


def _trainee(name: str) -> Trainee:
    torch.manual_seed(0)
    return MODELS[name]()


def _check(name: str, optimizer: str, steps: int) -> None:
    ours, theirs = OPTIMIZERS[optimizer]
    found = compare(_trainee(name), ours, theirs, steps)
    assert found.ours <= 3 * found.torch32 + 1e-5, found


@pytest.mark.parametrize("name", ["cnn", "decoder", "lstm", "mlp", "unet"])
def test_ten_steps(name: str) -> None:
    _check(name, "sgd", 10)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_hundred_steps(name: str, optimizer: str) -> None:
    _check(name, optimizer, 100)


@pytest.mark.parametrize("name", ["decoder", "cnn"])
def test_levels_agree(name: str) -> None:
    trainee = _trainee(name)
    results = {
        level: train_here(trainee, sambac.AdamW(lr=1e-3), 3, level=level)
        for level in ("O0", "O1", "O3")
    }
    for level, state in results.items():
        for key, value in state.items():
            largest = abs(results["O3"][key]).max() + 1e-12
            assert abs(value - results["O3"][key]).max() <= 1e-5 * largest, (level, key)


def test_recomputing_changes_no_number() -> None:
    trainee = _trainee("decoder")
    kept = train_here(trainee, sambac.SGD(lr=0.1), 3)
    again = train_here(trainee, sambac.SGD(lr=0.1), 3, recompute=True)
    for key, value in kept.items():
        assert (value == again[key]).all(), key
