"""What a SambaTensor does with the memory of the device, the examples of its page included."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba.tensors import current


class _Memory:
    """A device that remembers tensors by name."""

    def __init__(self, **held: Tensor) -> None:
        self.held = held

    def read(self, name: str) -> Tensor:
        return self.held[name].clone()

    def find(self, name: str) -> Tensor | None:
        return self.held[name].clone() if name in self.held else None

    def write(self, name: str, value: Tensor) -> None:
        assert not value.requires_grad
        self.held[name] = value.clone()


@pytest.fixture
def weight(monkeypatch: pytest.MonkeyPatch) -> samba.SambaTensor:
    """A parameter with a gradient, on the host and on the device, where other numbers are."""
    model = torch.nn.Linear(2, 3)
    samba.from_torch_model_(model)
    made = model.weight
    made.grad = torch.full((3, 2), 2.0)
    held = {"linear__weight": torch.ones(3, 2), "linear__weight__grad": torch.full((3, 2), 4.0)}
    session = SimpleNamespace(memory=_Memory(**held))
    monkeypatch.setattr(current._Current, "owner", session)
    assert isinstance(made, samba.SambaTensor)
    return made


def test_reading_device_memory(
    weight: samba.SambaTensor, capsys: pytest.CaptureFixture[str]
) -> None:
    sambatensor = weight
    print("data on device memory:", sambatensor.sn_data)
    print("gradient data on device memory if it exists:", sambatensor.sn_grad)
    sn_weight = weight.sn_data
    sn_grad = weight.sn_grad
    assert "4., 4." in capsys.readouterr().out
    assert type(sn_weight) is Tensor
    sn_weight += 1
    sn_grad += 1
    assert torch.equal(weight.sn_data, torch.ones(3, 2))
    assert torch.equal(weight.sn_grad, torch.full((3, 2), 4.0))
    weight.sn_data, weight.sn_grad = sn_weight, sn_grad
    assert torch.equal(weight.sn_data, torch.full((3, 2), 2.0))
    assert torch.equal(weight.sn_grad, torch.full((3, 2), 5.0))


def test_writing_device_memory(weight: samba.SambaTensor) -> None:
    before = weight.data.clone()
    sn_weight, sn_grad = weight.sn_data, weight.sn_grad
    weight.sn_data = sn_weight / torch.norm(sn_weight)
    weight.sn_grad = sn_grad / torch.norm(sn_grad)
    assert torch.norm(weight.sn_data).item() == pytest.approx(1)
    assert torch.norm(weight.sn_grad).item() == pytest.approx(1)
    assert torch.equal(weight.data, before)
    weight.rdu()
    assert torch.equal(weight.sn_data, before)
    weight.sn_data = samba.ones(3, 2)
    assert torch.equal(weight.sn_data, torch.ones(3, 2))


def test_moving_between_host_and_device(weight: samba.SambaTensor) -> None:
    sn_grad = weight.sn_grad
    weight.data = weight / torch.norm(weight)
    weight.grad = weight / torch.norm(weight.grad)
    assert torch.equal(weight.sn_data, torch.ones(3, 2))
    weight.rdu()
    assert torch.equal(weight.sn_data, weight.data)
    assert torch.equal(weight.sn_grad, weight.grad)
    weight.sn_grad = torch.zeros_like(sn_grad)
    assert weight.grad.abs().sum() > 0
    weight.cpu()
    assert torch.equal(weight.grad, torch.zeros(3, 2))


def test_moving_into_the_memory_that_is_there(weight: samba.SambaTensor) -> None:
    values, gradient = weight.data, weight.grad
    weight.cpu_()
    assert torch.equal(values, torch.ones(3, 2))
    assert gradient is not None
    assert torch.equal(gradient, torch.full((3, 2), 4.0))


def test_moving_into_new_memory(weight: samba.SambaTensor) -> None:
    values = weight.data
    before = values.clone()
    weight.cpu()
    assert torch.equal(values, before)
    assert torch.equal(weight.data, torch.ones(3, 2))


def test_inplace_is_a_parameter_of_cpu(weight: samba.SambaTensor) -> None:
    values = weight.data
    weight.cpu(inplace=True)
    assert torch.equal(values, torch.ones(3, 2))


def test_cpu_returns_the_tensor(weight: samba.SambaTensor) -> None:
    # The page says that cpu() returns None, and that SambaTensors have torch's methods: with None
    # `module.cpu()` of torch would fail.
    assert weight.cpu() is weight


def test_a_whole_model_moves(weight: samba.SambaTensor) -> None:
    model = nn.Linear(2, 3, bias=False)
    model.weight = weight
    assert torch.equal(model.cpu().weight, torch.ones(3, 2))


def test_a_tensor_without_a_name_is_on_the_host_already() -> None:
    found = (samba.ones(2) == torch.ones(2)).sum()
    assert found.cpu() is found


def test_a_tensor_without_data_takes_the_values_of_the_device(weight: samba.SambaTensor) -> None:
    weight.clear_data()
    assert not weight.has_data
    weight.cpu()
    assert torch.equal(weight.data, torch.ones(3, 2))


def test_a_tensor_without_data_is_materialised_for_the_device(weight: samba.SambaTensor) -> None:
    lazy = samba.SambaTensor(
        shape=(3, 2), name="linear__weight", materializer=lambda tensor, rng: torch.zeros(3, 2)
    )
    lazy.rdu()
    assert torch.equal(weight.sn_data, torch.zeros(3, 2))
    assert not lazy.has_data


def test_types_of_the_host_stay(weight: samba.SambaTensor) -> None:
    narrow = weight.detach().bfloat16()
    assert isinstance(narrow, samba.SambaTensor)
    narrow.cpu()
    assert narrow.dtype is torch.bfloat16


def test_a_tensor_without_a_name_has_no_memory_there() -> None:
    tensor = samba.ones(2)
    for use in (tensor.rdu, lambda: tensor.sn_data, lambda: tensor.sn_grad):
        with pytest.raises(samba.SambaError, match="a tensor without a name has no"):
            use()


def test_names_of_gradients(weight: samba.SambaTensor) -> None:
    assert weight.sn_grad_name == "linear__weight__grad"


def test_without_a_pef_there_is_no_memory() -> None:
    samba.session.reset()
    with pytest.raises(samba.SambaError):
        samba.ones(2, name="a").rdu()


def test_fast_access() -> None:
    tensor = samba.ones(2, name="fast_input")
    assert not tensor.fast_access
    tensor.fast_access = True
    assert samba.SambaTensor.is_fast_access("fast_input")
    assert samba.ones(2, name="fast_input").fast_access
    tensor.fast_access = False
    assert not samba.SambaTensor.is_fast_access("fast_input")


def test_fast_access_of_a_gradient_that_has_no_tensor() -> None:
    # The page gives the property of a tensor to gradients that have no tensor. One that has the
    # gradient's name stands for it.
    tensor = samba.SambaTensor(shape=(2,), name=samba.ones(2, name="out").sn_grad_name)
    tensor.fast_access = True
    assert samba.SambaTensor.is_fast_access("out__grad")
    tensor.fast_access = False


def test_fast_access_needs_a_name() -> None:
    with pytest.raises(samba.SambaError, match="without a name"):
        samba.ones(2).fast_access = True


@pytest.mark.parametrize("region", ["DDR", "HBM", "Host", None])
def test_memory_types(region: str | None) -> None:
    tensor = samba.ones(2)
    assert tensor.mem_type is None
    tensor.mem_type = region
    assert tensor.mem_type == region


def test_an_unknown_memory_type() -> None:
    with pytest.raises(ValueError, match="mem_type is 'SRAM', expected 'DDR', 'HBM', 'Host'"):
        samba.ones(2).mem_type = "SRAM"


def test_host_memory_and_regions_are_settable() -> None:
    tensor = samba.ones(2, name="a")
    tensor.host_memory = True
    tensor.sn_region_name = "b"
    assert tensor.host_memory
    assert tensor.sn_region_name == "b"
    assert not samba.ones(2).host_memory
