"""Whole models train as in PyTorch: after equal steps the weights are as close to the truth.

The truth is float64 PyTorch. Rounding grows with the steps, here as there: the error may be three
times that of float32 PyTorch, and 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import published_models
import pytest
import torch
from training_run import Comparison, compare, train_here

import sambac
from benchmarks.models import training as models
from benchmarks.models.training import Trainee

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


def _trainee(name: str, seed: int = 0) -> Trainee:
    """Return a model with weights and batches of its own for each seed."""
    torch.manual_seed(seed)
    trainee = MODELS[name]()
    return replace(trainee, batch=lambda step: trainee.batch(step + 1000 * seed))


def _check(name: str, optimizer: str, steps: int) -> None:
    """Compare with torch; after a failure two of five other seeds must do better.

    Gradients of ReLU and of pooling jump where two numbers meet. Now and then rounding, which
    differs from host to host, takes the other side of such a jump than float64 does. What is wrong
    in earnest is so with every seed.
    """
    ours, theirs = OPTIMIZERS[optimizer]
    found = [compare(_trainee(name), ours, theirs, steps)]
    if _is_close(found[0]):
        return
    for seed in range(1, 6):
        found.append(compare(_trainee(name, seed), ours, theirs, steps))
        if sum(map(_is_close, found)) == 2:
            return
    pytest.fail(f"{found}")


def _is_close(found: Comparison) -> bool:
    return found.ours <= 3 * found.torch32 + 1e-5


@pytest.mark.parametrize("name", ["cnn", "lstm", "mlp"])
def test_ten_steps(name: str) -> None:
    _check(name, "sgd", 10)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_hundred_steps(name: str, optimizer: str) -> None:
    _check(name, optimizer, 100)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("decoder", "O0"),
        ("cnn", "O1"),
        ("lstm", "O0"),
        pytest.param("lstm", "O1", marks=pytest.mark.long),
        pytest.param("decoder", "O1", marks=pytest.mark.long),
        pytest.param("cnn", "O0", marks=pytest.mark.long),
    ],
)
def test_levels_agree(name: str, level: str) -> None:
    trainee = _trainee(name)
    state, expected = (
        train_here(trainee, sambac.AdamW(lr=1e-3), 3, level=chosen) for chosen in (level, "O3")
    )
    assert state.keys() == expected.keys()
    for key, value in state.items():
        largest = abs(expected[key]).max() + 1e-12
        assert abs(value - expected[key]).max() <= 1e-5 * largest, key


@pytest.mark.long
def test_recomputing_changes_no_number() -> None:
    """To the last bit; test_training_recompute has it with tolerance in the short run."""
    trainee = _trainee("decoder")
    kept = train_here(trainee, sambac.SGD(lr=0.1), 3)
    again = train_here(trainee, sambac.SGD(lr=0.1), 3, recompute=True)
    for key, value in kept.items():
        assert (value == again[key]).all(), key
