"""Every optimizer, with every option, over several steps against PyTorch or a plain NumPy one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from step_machine import StepMachine

from sambac.optimizers import LAMB, LARS, SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop
from sambac.training.step import StepOptions

SHAPES: Mapping[str, tuple[int, ...]] = {
    "conv.weight": (4, 3, 3, 3),
    "conv.bias": (4,),
    "scale": (),
    "head.weight": (7, 33),
    "head.bias": (7,),
}
STEPS = 6
# Of the largest number of a tensor: differences of large numbers are no more exact.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}

Peer = Callable[[Sequence[torch.Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Case:
    ours: Optimizer
    torch: Peer
    slots: Mapping[str, str]


def _sgd(**options: float) -> Case:
    slots = {"momentum_buffer": "momentum_buffer"} if options.get("momentum") else {}
    return Case(SGD(lr=0.05, **options), lambda p: torch.optim.SGD(p, lr=0.05, **options), slots)


def _adam(ours: type[Adam], peer: type[torch.optim.Optimizer], **options: float) -> Case:
    slots = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
    if options.get("amsgrad"):
        slots["max_exp_avg_sq"] = "max_exp_avg_sq"
    numbers = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-7}
    theirs = {"betas": (0.8, 0.95), "eps": 1e-7}
    return Case(
        ours(lr=0.02, **numbers, **options), lambda p: peer(p, lr=0.02, **theirs, **options), slots
    )


def _rmsprop(**options: float) -> Case:
    slots = {"square_avg": "square_avg"}
    if options.get("momentum"):
        slots["momentum_buffer"] = "momentum_buffer"
    if options.get("centered"):
        slots["grad_avg"] = "grad_avg"
    return Case(
        RMSprop(lr=0.01, alpha=0.9, eps=1e-6, **options),
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-6, **options),
        slots,
    )


def _adagrad(**options: float) -> Case:
    return Case(
        Adagrad(lr=0.05, **options),
        lambda p: torch.optim.Adagrad(p, lr=0.05, **options),
        {"sum": "sum"},
    )


CASES: Mapping[str, Case] = {
    "sgd": _sgd(),
    "sgd decay": _sgd(weight_decay=0.1),
    "sgd momentum": _sgd(momentum=0.9),
    "sgd momentum decay": _sgd(momentum=0.9, weight_decay=0.1),
    "sgd dampening": _sgd(momentum=0.9, dampening=0.3),
    "sgd dampening decay": _sgd(momentum=0.9, dampening=0.3, weight_decay=0.1),
    "sgd nesterov": _sgd(momentum=0.9, nesterov=True),
    "sgd nesterov decay": _sgd(momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": _adam(Adam, torch.optim.Adam),
    "adam decay": _adam(Adam, torch.optim.Adam, weight_decay=0.1),
    "adam amsgrad": _adam(Adam, torch.optim.Adam, amsgrad=True),
    "adam amsgrad decay": _adam(Adam, torch.optim.Adam, amsgrad=True, weight_decay=0.1),
    "adamw": _adam(AdamW, torch.optim.AdamW, weight_decay=0.1),
    "adamw no decay": _adam(AdamW, torch.optim.AdamW, weight_decay=0.0),
    "adamw amsgrad": _adam(AdamW, torch.optim.AdamW, weight_decay=0.1, amsgrad=True),
    "rmsprop": _rmsprop(),
    "rmsprop decay": _rmsprop(weight_decay=0.1),
    "rmsprop momentum": _rmsprop(momentum=0.8),
    "rmsprop centered": _rmsprop(centered=True),
    "rmsprop everything": _rmsprop(centered=True, momentum=0.8, weight_decay=0.1),
    "adagrad": _adagrad(),
    "adagrad decay": _adagrad(weight_decay=0.1),
    "adagrad lr decay": _adagrad(lr_decay=0.2),
    "adagrad initial": _adagrad(initial_accumulator_value=0.5, lr_decay=0.2, weight_decay=0.1),
}


@pytest.mark.parametrize("pack", [False, True], ids=["apart", "packed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", CASES)
def test_follows_torch(name: str, dtype: type, pack: bool) -> None:
    case = CASES[name]
    rng = np.random.default_rng(3)
    start = {key: rng.standard_normal(shape).astype(dtype) for key, shape in SHAPES.items()}
    machine = StepMachine(start, StepOptions((case.ours,), pack=pack))
    tensors = {key: exactly(torch.tensor(array)) for key, array in start.items()}
    peer = case.torch(list(tensors.values()))
    for _ in range(STEPS):
        gradients = {key: rng.standard_normal(s).astype(dtype) for key, s in SHAPES.items()}
        machine.run(gradients)
        for key, tensor in tensors.items():
            tensor.grad = exactly(torch.tensor(gradients[key]))
        peer.step()
    for key, tensor in tensors.items():
        assert_near(machine.read(key), tensor, TOLERANCE[dtype], what=key)
        for ours, theirs in case.slots.items():
            name, expected = f"{key}__{ours}", peer.state[tensor][theirs]
            assert_near(machine.read(name), expected, TOLERANCE[dtype], what=name)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lamb_is_the_papers(weight_decay: float) -> None:
    ours = LAMB(lr=0.02, beta1=0.8, beta2=0.95, eps=1e-7, weight_decay=weight_decay)
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def step(key: str, count: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        m, v = moments.get(key, (np.zeros_like(w), np.zeros_like(w)))
        m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g * g
        moments[key] = m, v
        u = m / (1 - 0.8**count) / (np.sqrt(v / (1 - 0.95**count)) + 1e-7) + weight_decay * w
        sizes = np.linalg.norm(w), np.linalg.norm(u)
        return w - 0.02 * (sizes[0] / sizes[1] if all(sizes) else 1.0) * u

    _follows(ours, step)


@pytest.mark.parametrize("limits", [(0.0, 0.0), (0.0, 0.9), (1.1, 0.0), (0.9, 1.1)])
def test_lamb_without_correction_and_between_limits(limits: tuple[float, float]) -> None:
    ours = LAMB(
        lr=0.02, weight_decay=0.1, bias_correction=False, min_trust=limits[0], max_trust=limits[1]
    )
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def step(key: str, count: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        m, v = moments.get(key, (np.zeros_like(w), np.zeros_like(w)))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        moments[key] = m, v
        u = m / (np.sqrt(v) + 1e-6) + 0.1 * w
        sizes = np.linalg.norm(w), np.linalg.norm(u)
        clipped = np.clip(sizes[0] / sizes[1], limits[0], limits[1] or None) if all(sizes) else 1.0
        return w - 0.02 * clipped * u

    _follows(ours, step)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_without_correction(decoupled: bool) -> None:
    kind = AdamW if decoupled else Adam
    ours = kind(lr=0.02, eps=1e-7, weight_decay=0.1, bias_correction=False)
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def step(key: str, count: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        g = g if decoupled else g + 0.1 * w
        m, v = moments.get(key, (np.zeros_like(w), np.zeros_like(w)))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        moments[key] = m, v
        return w - 0.02 * (m / (np.sqrt(v) + 1e-7) + (0.1 * w if decoupled else 0.0))

    _follows(ours, step)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lars_is_the_papers(momentum: float, weight_decay: float) -> None:
    ours = LARS(lr=0.1, momentum=momentum, weight_decay=weight_decay, trust=0.02, eps=1e-7)
    velocity: dict[str, np.ndarray] = {}

    def step(key: str, count: int, w: np.ndarray, g: np.ndarray) -> np.ndarray:
        sizes = np.linalg.norm(w), np.linalg.norm(g)
        rate = 0.02 * sizes[0] / (sizes[1] + weight_decay * sizes[0] + 1e-7) if all(sizes) else 1.0
        move = momentum * velocity.get(key, 0.0) + 0.1 * rate * (g + weight_decay * w)
        velocity[key] = move
        return w - move

    _follows(ours, step)


def _follows(
    ours: Optimizer, step: Callable[[str, int, np.ndarray, np.ndarray], np.ndarray]
) -> None:
    """Run `ours` beside `step` (name, number, parameter, gradient -> parameter) in float64.

    One parameter starts as zeros, one gets a gradient of zeros: norms to divide by are 0 there.
    """
    rng = np.random.default_rng(5)
    weights = {key: rng.standard_normal(shape) for key, shape in SHAPES.items()}
    weights["conv.bias"] *= 0
    machine = StepMachine(weights, StepOptions((ours,)))
    for count in range(1, STEPS + 1):
        gradients = {key: rng.standard_normal(shape) for key, shape in SHAPES.items()}
        gradients["head.bias"] *= 0
        machine.run(gradients)
        weights = {key: step(key, count, weights[key], gradients[key]) for key in SHAPES}
    for key, expected in weights.items():
        assert_near(machine.read(key), expected, TOLERANCE[np.float64], what=key)


@pytest.mark.parametrize("pack", [False, True], ids=["apart", "packed"])
def test_groups_clipping_and_new_rates_follow_torch(pack: bool) -> None:
    """Two optimizers, one with two groups, clipped together, their rates changed on the way."""
    rng = np.random.default_rng(11)
    start = {key: rng.standard_normal(shape).astype("f") for key, shape in SHAPES.items()}
    ours = (
        AdamW(lr=0.02, params=("*",)),
        AdamW(lr=0.01, weight_decay=0.0, params=("*.bias", "scale")),
        SGD(lr=0.1, momentum=0.9, params=("head.weight",)),
    )
    machine = StepMachine(start, StepOptions(ours, max_grad_norm=1.5, pack=pack))
    tensors = {key: exactly(torch.tensor(array)) for key, array in start.items()}
    adamw = torch.optim.AdamW(
        [
            {"params": [tensors["conv.weight"]], "lr": 0.02},
            {
                "params": [tensors[key] for key in ("conv.bias", "scale", "head.bias")],
                "lr": 0.01,
                "weight_decay": 0.0,
            },
        ]
    )
    sgd = torch.optim.SGD([tensors["head.weight"]], lr=0.1, momentum=0.9)
    for count in range(STEPS):
        size = 0.05 if count == 2 else 1.0
        gradients = {
            key: (size * rng.standard_normal(shape)).astype("f") for key, shape in SHAPES.items()
        }
        changed = {"adamw.1.lr": 0.03, "sgd.momentum": 0.5} if count == 3 else {}
        if changed:
            adamw.param_groups[1]["lr"], sgd.param_groups[0]["momentum"] = 0.03, 0.5
        machine.run(gradients, changed)
        for key, tensor in tensors.items():
            tensor.grad = exactly(torch.tensor(gradients[key]))
        norm = torch.nn.utils.clip_grad_norm_(tensors.values(), 1.5)
        adamw.step()
        sgd.step()
        assert_near(machine.read("grad_norm"), norm, what="norm")
        for key, tensor in tensors.items():
            assert tensor.grad is not None
            assert_near(machine.read(f"{key}__grad"), tensor.grad, what=f"gradient of {key}")
    for key, tensor in tensors.items():
        assert_near(machine.read(key), tensor, what=key)
