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


def _uncorrected(g, state, beta1, beta2, eps):
    state["m"] = beta1 * state["m"] + (1 - beta1) * g
    state["v"] = beta2 * state["v"] + (1 - beta2) * g * g
    return state["m"] / (state["v"].sqrt() + eps)


def _adam(w, g, state):
    return 0.02 * _uncorrected(g, state, 0.9, 0.999, 1e-8)


def _adamw(w, g, state):
    return _adam(w, g, state) + 0.02 * 0.05 * w


def _lamb(w, g, state):
    r = _uncorrected(g, state, 0.7, 0.95, 0.01) + 0.05 * w
    return 0.02 * (w.norm() / r.norm()).clamp(0.2, 0.3) * r


def _lars(w, g, state):
    q = 0.2 * w.norm() / (g.norm() + 0.05 * w.norm() + 0.1)
    state["m"] = 0.8 * state["m"] + 0.02 * q * (g + 0.05 * w)
    return state["m"]


_LAMB = {"beta1": 0.7, "beta2": 0.95, "eps": 0.01, "weight_decay": 0.05, "clip_value": (0.2, 0.3)}
_LARS = {"momentum": 0.8, "weight_decay": 0.05, "lars_coeff": 0.2, "epsilon": 0.1}


FORMULAS = {
    "adam": (optimizers.Adam(0.02, bias_correction=False, device_params=True), _adam),
    "adamw": (
        optimizers.AdamW(0.02, weight_decay=0.05, bias_correction=False, device_params=True),
        _adamw,
    ),
    "lamb": (optimizers.LAMB(0.02, **_LAMB, device_params=True), _lamb),
    "lars": (optimizers.LARS(0.02, **_LARS, device_params=True), _lars),
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


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "LAMB", "LARS"])
def test_every_optimizer_takes_parameters(kind: str) -> None:
    one = pybuda.Parameter(torch.ones(2), name="one")
    optimizer = getattr(optimizers, kind)(learning_rate=0.1, parameters=[one])
    assert optimizer.compiled({"one": "m.one", "other": "m.other"}).params == ("m.one",)
    assert optimizer.compiled({"other": "m.other"}) is None


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


class Forgetful(Halving):
    def get_lr(self) -> float:
        super().get_lr()
        return None  # type: ignore[return-value]  # as who writes no return


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_learning_rate_that_is_none_is_refused(scheduled: bool) -> None:
    """It was taken for a device without an optimizer, or for the rate before."""
    optimizer = sgd(0.2)
    scheduler = Forgetful(optimizer) if scheduled else None
    device = pybuda.TTDevice(
        "tt0", module=later(perceptron(), "m"), optimizer=optimizer, scheduler=scheduler
    )
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    push(batches(2), device)
    pybuda.run_training().get(timeout=WAIT)
    if not scheduled:
        optimizer.learning_rate = None
    with pytest.raises(pybuda.PyBudaError, match="sgd: lr is None; give a number"):
        pybuda.run_training().get(timeout=WAIT)


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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_settings_that_are_compiled_in_are_not_changed_without_a_word(name: str) -> None:
    kind, settings = (described := OPTIMIZERS[name][0].described()).pop("type"), described
    optimizer = getattr(optimizers, str(kind))(**settings, device_params=True)
    odd = "lr" if kind == "SGD" else "beta3"
    with pytest.raises(pybuda.PyBudaError, match=f"{kind} has no '{odd}'"):
        setattr(optimizer, odd, 0.5)
    changed = [key for key in settings if key in ("beta1", "weight_decay", "bias_correction")]
    for key in changed:
        setattr(optimizer, key, settings[key])  # nothing is compiled so far
    device = device_with(perceptron(), None, optimizer)
    push(batches(2), device)
    pybuda.run_training().get(timeout=WAIT)
    for key in changed:
        with pytest.raises(pybuda.PyBudaError, match=f"{key} is compiled in"):
            setattr(optimizer, key, settings[key])
    optimizer.learning_rate = 0.5
    pybuda.run_training().get(timeout=WAIT)
