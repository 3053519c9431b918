"""What a program writes to modules while they train on a device is what trains from then on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from pybuda_training import (
    WAIT,
    Classifier,
    batches,
    device_with,
    is_checkpoint_of,
    l1,
    near,
    peer_of,
    push,
    taken,
)
from torch import nn

import pybuda
from pybuda import optimizers


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 4)
        self.register_buffer("scale", torch.ones(5))
        self.mask = torch.ones(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.scale.to(x.dtype) * self.mask.to(x.dtype)
        return self.second(torch.tanh(self.first(x)) * scale)


def _written(model: nn.Module) -> None:
    with torch.no_grad():
        model.first.bias.copy_(torch.linspace(-1, 1, 5))
        model.scale.mul_(0.5)


def _other_data(model: nn.Module) -> None:
    model.second.weight.data = torch.linspace(-1, 1, 20).reshape(4, 5).to(model.first.bias.dtype)


def _other_buffer(model: nn.Module) -> None:
    model.scale = torch.linspace(0, 2, 5)


def _other_parameter(model: nn.Module) -> None:
    dtype = model.first.bias.dtype
    model.second.bias = nn.Parameter(torch.linspace(0, 2, 4).to(dtype))


def _other_attribute(model: nn.Module) -> None:
    model.mask = torch.tensor([1.0, 0, 1, 0, 1])


def _written_attribute(model: nn.Module) -> None:
    model.mask[1] = 0


_CHANGES = {
    "written": (_written, False),
    "other data": (_other_data, False),
    "another buffer": (_other_buffer, True),
    "another parameter": (_other_parameter, True),
    "another attribute": (_other_attribute, True),
    "a written attribute": (_written_attribute, True),
}
"""What a program does to a module, and whether it is compiled again, with a warning."""


@pytest.mark.parametrize(("change", "again"), _CHANGES.values(), ids=_CHANGES)
def test_what_is_written_between_calls_trains(
    change: Callable[[nn.Module], None], again: bool
) -> None:
    torch.manual_seed(6)
    model = _Scaled()
    twin = peer_of(model, l1, lambda p: torch.optim.SGD(p, 0.05))
    device = device_with(model, None, optimizers.SGD(0.05, device_params=True))
    for index, pair in enumerate(batches(2)):
        if index == 1:
            change(model)
            change(twin.module)
            twin.optimizer = torch.optim.SGD(twin.module.parameters(), 0.05)
        push([pair], device)
        told = "have changed since they were compiled to train"
        with pytest.warns(UserWarning, match=told) if again and index == 1 else nullcontext():
            checkpoints = pybuda.run_training()
        near(taken(pybuda.get_loss_queue()), *twin.step([pair]), 1e-4)
        is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


@pytest.mark.parametrize("infers", [False, True], ids=["training alone", "inference between"])
def test_the_state_of_the_optimizer_goes_on_behind_a_write(infers: bool) -> None:
    torch.manual_seed(6)
    model = _Scaled()
    twin = peer_of(model, l1, lambda p: torch.optim.Adam(p, 0.05))
    device = device_with(model, None, optimizers.Adam(0.05, device_params=True))
    for index, pair in enumerate(batches(3)):
        if index == 1:
            _written(model)
            _written(twin.module)
        push([pair], device)
        checkpoints = pybuda.run_training()
        near(taken(pybuda.get_loss_queue()), *twin.step([pair]), 1e-4)
        is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
        if infers:
            pybuda.run_inference(inputs=[pair[0]]).get(timeout=WAIT)


def test_by_hand_the_last_who_writes_wins() -> None:
    torch.manual_seed(6)
    model, ((x, y),) = _Scaled(), batches(1)
    device = device_with(model)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))

    def bias() -> torch.Tensor:
        return pybuda.get_parameter_checkpoint(device)[0]["first.bias"].value()

    with torch.no_grad():
        model.first.bias.fill_(2)
    near(bias(), torch.full((5,), 2.0).double())
    with torch.no_grad():
        model.first.bias.fill_(3)
    pybuda.update_device_parameters(device, [{"first.bias": torch.full((5,), 4.0)}])
    near(bias(), torch.full((5,), 4.0).double())
    with torch.no_grad():
        model.first.bias.fill_(5)
    push([(x, y)], device)
    pybuda.run_forward()
    wanted = (model(x) - y).abs().mean(1).detach()
    near(taken(pybuda.get_loss_queue()), wanted.double())


def test_values_of_a_pybuda_module_are_written_in_both_ways() -> None:
    module = Classifier("c")
    device = pybuda.TTDevice(
        "tt0", module=module, optimizer=optimizers.SGD(0.0, device_params=True)
    )
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    x, y = torch.randn(1, 6), torch.randn(1, 4)

    def loss() -> torch.Tensor:
        device.push_to_inputs(x)
        device.push_to_target_inputs(y)
        pybuda.run_training()
        return taken(pybuda.get_loss_queue())

    def wanted() -> torch.Tensor:
        weight, bias = (module.get_parameter(n).value().double() for n in ("weight", "bias"))
        return l1(x.double() @ weight + bias + 0.5, y.double()).reshape(1)

    near(loss(), wanted())
    module.get_parameter("weight").value().mul_(2)
    near(loss(), wanted())
    module.get_parameter("bias").set_value(torch.randn(1, 4))
    with pytest.warns(UserWarning, match="compiled again"):
        near(loss(), wanted())
