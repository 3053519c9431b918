"""Whole models: an application trains as it does in PyTorch, loss after loss.

The truth is float64 PyTorch. The error of the losses may be three times that of float32 PyTorch,
and 1e-5.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest
import torch
from training_run import MakeOptimizer, loss_of

import sambaflow.samba as samba
import sambaflow.samba.utils as utils
from benchmarks.models import training as models
from benchmarks.models.training import Trainee

MODELS: dict[str, Callable[[], Trainee]] = {
    "cnn": models.cnn,
    "decoder": models.decoder,
    "depthwise": models.depthwise,
    "linear_regression": models.linear_regression,
    "lstm": models.lstm,
    "mlp": models.mlp,
    "unet": models.unet,
}
OPTIMIZERS = ("sgd", "adamw")
RATES = {"depthwise": 0.002}
"""Rates of SGD where 0.02 is so large that float32 tells nothing after fifty steps."""


def _optimizers(name: str, kind: str) -> tuple[MakeOptimizer, MakeOptimizer]:
    """Return what makes the optimizer of a model: that of samba, and PyTorch's."""
    if kind == "adamw":
        return (
            lambda parameters: samba.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.999)),
            lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0),
        )
    rate = RATES.get(name, 0.02)
    return (
        lambda parameters: samba.optim.SGD(parameters, lr=rate, momentum=0.9),
        lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
    )


def _trainee(name: str, seed: int) -> Trainee:
    """Return a model with weights and batches of its own for each seed."""
    torch.manual_seed(seed)
    trainee = MODELS[name]()
    return replace(trainee, batch=lambda step: trainee.batch(step + 1000 * seed))


def _names(batch: tuple[torch.Tensor, ...]) -> list[str]:
    return [f"part_{number}" for number in range(len(batch))]


def _in_samba(trainee: Trainee, make: MakeOptimizer, steps: int, folder: str) -> list[float]:
    """Return the losses of an application."""
    model = trainee.module.train()
    samba.from_torch_model_(model)
    optimizer = make(list(model.parameters()))
    names = _names(trainee.batch(0))

    def batch(step: int) -> tuple[samba.SambaTensor, ...]:
        return tuple(map(samba.from_torch_tensor, trainee.batch(step), names))

    pef = samba.session.compile(
        model, batch(0), optimizer, name="model", config_dict={"output_folder": folder}
    )
    outputs = utils.trace_graph(model, batch(0), optimizer, pef=pef)
    return [
        samba.session.run(input_tensors=batch(step), output_tensors=outputs)[0].item()
        for step in range(steps)
    ]


def _in_torch(trainee: Trainee, make: MakeOptimizer, steps: int, dtype: torch.dtype) -> list[float]:
    """Return the losses of the same application without sambaflow."""
    module = copy.deepcopy(trainee.module).to(dtype).train()
    optimizer = make(list(module.parameters()))
    losses = []
    for step in range(steps):
        batch = [x.to(dtype) if x.is_floating_point() else x for x in trainee.batch(step)]
        optimizer.zero_grad()
        loss = loss_of(module(*batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@dataclass(frozen=True)
class Standard:
    """The losses of PyTorch in float64, which are the truth, and its error in float32."""

    seed: int
    losses: np.ndarray
    torch32: float

    @property
    def allowed(self) -> float:
        return float(3 * self.torch32 + 1e-5 * np.abs(self.losses).max())

    @property
    def tells(self) -> bool:
        """Whether PyTorch in float32 is near enough to the truth to compare with."""
        return bool(np.ptp(self.losses) > 100 * self.allowed)


def _standards(name: str, kind: str, steps: int) -> Iterator[Standard]:
    """Yield what to compare with, for those of twelve seeds that tell something."""
    _, make = _optimizers(name, kind)
    for seed in range(12):
        exact, single = (
            np.array(_in_torch(_trainee(name, seed), make, steps, dtype))
            for dtype in (torch.float64, torch.float32)
        )
        found = Standard(seed, exact, np.abs(single - exact).max())
        if found.tells:
            yield found


def _error(name: str, kind: str, steps: int, standard: Standard) -> float:
    """Return the largest error of the losses of an application, as a part of what is allowed."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            trainee = _trainee(name, standard.seed)
            make, _ = _optimizers(name, kind)
            ours = np.array(_in_samba(trainee, make, steps, folder))
        finally:
            samba.session.reset()
    return float(np.abs(ours - standard.losses).max() / standard.allowed)


def _check(name: str, kind: str, steps: int) -> None:
    """Compare with torch; after a failure two of five other seeds must do better.

    Gradients of ReLU and of pooling jump where two numbers meet. Now and then rounding, which
    differs from host to host, takes the other side of such a jump than float64 does: here, or in
    PyTorch, which then tells nothing. What is wrong in earnest is so with every seed.
    """
    errors = (_error(name, kind, steps, found) for found in _standards(name, kind, steps))
    found = [next(errors)]
    if found[0] <= 1:
        return
    for other in islice(errors, 5):
        found.append(other)
        if sum(error <= 1 for error in found) == 2:
            return
    pytest.fail(f"errors, as parts of what is allowed: {found}")


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_five_steps(name: str) -> None:
    _check(name, "sgd", 5)


@pytest.mark.long
@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_fifty_steps(name: str, kind: str) -> None:
    _check(name, kind, 50)
