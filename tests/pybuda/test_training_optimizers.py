"""Optimizers and schedulers of a device beside torch in float64, and beside their formulas."""

from __future__ import annotations

import pytest
import torch
from pybuda_runs import later
from pybuda_training import (
    WAIT,
    Classifier,
    batches,
    device_with,
    is_checkpoint_of,
    l1,
    near,
    peer,
    peer_of,
    perceptron,
    push,
    sgd,
)

import pybuda
from pybuda import optimizers

OPTIMIZERS = {
    "sgd": (optimizers.SGD(0.1, device_params=True), lambda p: torch.optim.SGD(p, 0.1)),
    "adam decay": (
        optimizers.Adam(0.02, 0.8, 0.95, 0.01, 0.1, device_params=True),
        lambda p: torch.optim.Adam(p, 0.02, (0.8, 0.95), 0.01, 0.1),
    ),
    "adam w": (
        optimizers.Adam(0.02, weight_decay=0.1, device_params=True, enable_adam_w=True),
        lambda p: torch.optim.AdamW(p, 0.02, weight_decay=0.1),
    ),
    "adamw": (optimizers.AdamW(0.02, device_params=True), lambda p: torch.optim.AdamW(p, 0.02)),
    "adamw decay": (
        optimizers.AdamW(0.02, 0.8, 0.95, 0.01, 0.1, device_params=True),
        lambda p: torch.optim.AdamW(p, 0.02, (0.8, 0.95), 0.01, 0.1),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_torchs(name: str) -> None:
    optimizer, theirs = OPTIMIZERS[name]
    model = perceptron()
    twin = peer_of(model, l1, theirs)
    device = device_with(model, None, optimizer)
    pairs = batches(6)
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=6)
    for pair in pairs:
        twin.step([pair])
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


class _Formula(torch.optim.Optimizer):
    """The reference's formulas that torch has no optimizer for."""

    def __init__(self, parameters, update) -> None:
        super().__init__(parameters, {})
        self.update = update

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for weight in self.param_groups[0]["params"]:
            state = self.state[weight]
            if not state:
                state["m"], state["v"] = torch.zeros_like(weight), torch.zeros_like(weight)
            weight -= self.update(weight, weight.grad, state)


def _uncorrected(w, g, state):
    state["m"] = 0.9 * state["m"] + 0.1 * g
    state["v"] = 0.999 * state["v"] + 0.001 * g * g
    return 0.02 * state["m"] / (state["v"].sqrt() + 1e-8)


def _lamb(w, g, state):
    r = _uncorrected(w, g, state) / 0.02 + 0.01 * w
    return 0.02 * (w.norm() / r.norm()).clamp(0.0, 0.5) * r


def _lars(w, g, state):
    q = 0.2 * w.norm() / (g.norm() + 0.01 * w.norm() + 1e-8)
    state["m"] = 0.8 * state["m"] + 0.02 * q * (g + 0.01 * w)
    return state["m"]


FORMULAS = {
    "adam": (optimizers.Adam(0.02, bias_correction=False, device_params=True), _uncorrected),
    "lamb": (optimizers.LAMB(0.02, clip_value=(0.0, 0.5), device_params=True), _lamb),
    "lars": (optimizers.LARS(0.02, 0.8, lars_coeff=0.2, device_params=True), _lars),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_optimizers_are_the_references(name: str) -> None:
    optimizer, formula = FORMULAS[name]
    model = perceptron()
    twin = peer_of(model, l1, lambda p: _Formula(p, formula))
    device = device_with(model, None, optimizer)
    pairs = batches(6)
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=6)
    for pair in pairs:
        twin.step([pair])
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


class Halving(pybuda.schedulers.LearningRateScheduler):
    def get_lr(self) -> float:
        return self.optimizer.learning_rate / 2


def test_schedulers_step_after_each_epoch() -> None:
    model, optimizer = perceptron(), sgd(0.2)
    device = pybuda.TTDevice(
        "tt0", module=later(model, "m"), optimizer=optimizer, scheduler=Halving(optimizer)
    )
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    twin = peer(model, 0.2)
    pairs = batches(6)
    push(pairs, device)
    checkpoints = pybuda.run_training(epochs=3, steps=2)
    for number, pair in enumerate(pairs):
        twin.optimizer.param_groups[0]["lr"] = 0.2 / 2 ** (number // 2)
        twin.step([pair])
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
    optimizer.set_optimizer_parameters(learning_rate=0.0)
    push(pairs[:1], device)
    pybuda.run_training()
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


def test_an_optimizer_of_some_parameters_leaves_the_others() -> None:
    module = Classifier("c")
    device = pybuda.TTDevice("tt0", module=module, optimizer=optimizers.SGD(0.3, [module.bias]))
    device.place_loss_module(pybuda.op.loss.L1Loss("l1", reduction="sum"))
    push(batches(1, size=1), device)
    (found,) = pybuda.run_training().get(timeout=WAIT)
    assert torch.equal(found["c.weight"].value(), module.weight.value())
    assert not torch.equal(found["c.bias"].value(), module.bias.value())
    (gradients,) = pybuda.get_parameter_gradients(device)
    near(gradients["c.bias"].value(), (module.bias.value() - found["c.bias"].value()) / 0.3)
