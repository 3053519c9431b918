"""Modules that take derivatives inside forward: on both kinds of devices they are torch's."""

from __future__ import annotations

import pytest
import torch
from pybuda_training import WAIT, near, on, parts_of, push, twin_of
from torch import nn

import pybuda
from pybuda.verify import TestKind, VerifyConfig, verify_module


class Slopes(nn.Module):
    """A value beside its slopes in each input, as networks of physics have them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        value = self.layers(x)
        (slopes,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return torch.cat([value, slopes], 1)


class Stepped(nn.Module):
    """What a layer gives after a step of its own, in each of its runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = (x @ self.weight).square().sum()
        (slope,) = torch.autograd.grad(loss, self.weight, create_graph=True)
        return x @ (self.weight - 0.1 * slope)


MODELS = {"by inputs": Slopes, "by parameters": Stepped}
each_model = pytest.mark.parametrize("model", MODELS)


def _batch() -> torch.Tensor:
    return torch.randn(3, 2, generator=torch.Generator().manual_seed(2))


def _expected(model: nn.Module, batch: torch.Tensor, by_sample: bool) -> torch.Tensor:
    samples = batch.double().split(1 if by_sample else len(batch))
    return torch.cat([model.double()(sample) for sample in samples]).detach()


@each_model
@pytest.mark.parametrize("kind", ["TTDevice", "CPUDevice"])
def test_inference(kind: str, model: str) -> None:
    device = getattr(pybuda, kind)("net", module=pybuda.PyTorchModule("net", MODELS[model]()))
    device.push_to_inputs(_batch())
    (found,) = pybuda.run_inference().get()
    assert not found.value().requires_grad
    expected = _expected(MODELS[model](), _batch(), by_sample=kind == "TTDevice")
    near(found.value(), expected)


@each_model
@pytest.mark.parametrize("kind", ["tt", "cpu"])
def test_training(kind: str, model: str) -> None:
    net = MODELS[model]()
    peer = twin_of(net, by_sample=kind == "tt")
    device = on(kind, "net", net)
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    pairs = [(_batch() + step, torch.ones(3, 3)) for step in range(2)]
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=2)
    for pair in pairs:
        peer.step([pair])
    found = parts_of(checkpoints.get(timeout=WAIT), "0")
    for name, expected in peer.named().items():
        near(found[name], expected, 1e-4)


@each_model
def test_verification_and_what_torch_evaluates(model: str) -> None:
    module = pybuda.PyTorchModule("net", MODELS[model]())
    training = VerifyConfig(relative_atol=1e-4, pcc=0.9999, test_kind=TestKind.TRAINING)
    verify_module(module, [(3, 2)], training)
    pybuda.shutdown()
    device = pybuda.TTDevice("net", module=module)
    device.push_to_inputs(_batch())
    read = device.get_parameters(ignore_unused_parameters=True)
    assert len(read) == len([*module.module.parameters()])
    (found,) = pybuda.run_inference(_verify_cfg=VerifyConfig(relative_atol=1e-4)).get()
    (evaluated,) = device.cpueval_forward([_batch()], {}, False)
    near(found.value(), evaluated.double())
