"""What evaluates in a model that trains, as statistics that are frozen: all devices leave it so."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from pybuda_training import WAIT, Pair, is_checkpoint_of, peer_of, push, taken
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import optimizers
from pybuda.verify import TestKind, VerifyConfig, verify_module

KINDS = ["TTDevice", "CPUDevice"]


def _model() -> nn.Sequential:
    torch.manual_seed(3)
    layers = (nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(16, 3))
    with torch.no_grad():
        model[1].running_mean.fill_(0.3)
        model[1].running_var.fill_(2.0)
    return model


def _pairs(count: int) -> list[Pair]:
    torch.manual_seed(5)
    return [(torch.randn(1, 2, 4, 4), torch.randn(1, 3)) for _ in range(count)]


def _placed(kind: str, model: nn.Module, chips: int = 1) -> pybuda.Device:
    module = pybuda.PyTorchModule("net", model)
    if kind == "CPUDevice":
        device = pybuda.CPUDevice("net", lambda m: torch.optim.SGD(m.parameters(), 0.1))
    else:
        optimizer = optimizers.SGD(0.1, device_params=True)
        device = pybuda.TTDevice("net", optimizer=optimizer, num_chips=chips)
    device.place_module(module)
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    return device


def _frozen(model: nn.Module) -> None:
    model[1].eval()


_MODES: dict[str, Callable[[nn.Module], object]] = {
    "train": lambda model: model.train(),
    "frozen": _frozen,
    "all frozen, which begins to train": lambda model: model.eval(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", _MODES)
def test_what_evaluates_in_a_model_that_trains_does_so(mode: str, kind: str) -> None:
    model = _model()
    _MODES[mode](model)
    twin = peer_of(model, functional.mse_loss, lambda p: torch.optim.SGD(p, 0.1))
    if not model.training:
        twin.module.train()
    pairs, device = _pairs(3), _placed(kind, model)
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=3, _sequential=True)
    for pair in pairs:
        wanted = twin.step([pair])[0]
        assert float((taken(pybuda.get_loss_queue()).double() - wanted).abs().max()) < 1e-5
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_that_are_frozen_while_a_device_trains_stay(kind: str) -> None:
    model = _model()
    twin = peer_of(model, functional.mse_loss, lambda p: torch.optim.SGD(p, 0.1))
    device = _placed(kind, model)
    for number, pair in enumerate(_pairs(4)):
        if number == 2:
            _frozen(model)
            _frozen(twin.module)
        push([pair], device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the state of the optimizer begins anew
            checkpoints = pybuda.run_training(_sequential=True)
        twin.step([pair])
        is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


def test_a_model_that_is_put_to_evaluate_between_steps_is_not_compiled_again() -> None:
    model = _model()
    device = _placed("TTDevice", model)
    for pair in _pairs(3):
        push([pair], device)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pybuda.run_training(_sequential=True).get(timeout=WAIT)
        model.train(not model.training)


def test_inference_on_the_host_leaves_modes_as_they_were() -> None:
    model = _model()
    _frozen(model)
    twin = peer_of(model, functional.mse_loss, lambda p: torch.optim.SGD(p, 0.1))
    device = _placed("CPUDevice", model)
    for pair in _pairs(2):
        pybuda.run_inference(inputs=[(pair[0],)], _sequential=True).get(timeout=WAIT)
        push([pair], device)
        checkpoints = pybuda.run_training(_sequential=True)
        twin.step([pair])
        is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
    assert model.training
    assert not model[1].training


def test_frozen_statistics_are_those_of_all_chips() -> None:
    model = _model()
    _frozen(model)
    twin = peer_of(model, functional.mse_loss, lambda p: torch.optim.SGD(p, 0.1))
    pybuda.set_chip_break("4")
    (pair,) = _pairs(1)
    push([pair], _placed("TTDevice", model, chips=2))
    checkpoints = pybuda.run_training(_sequential=True)
    twin.step([pair])
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


def test_verification_trains_what_the_device_trains() -> None:
    model = _model()
    _frozen(model)
    strict = VerifyConfig(test_kind=TestKind.TRAINING, pcc=None, relative_atol=1e-3, steps=2)
    verify_module(pybuda.PyTorchModule("net", model), [(1, 2, 4, 4)], strict)
