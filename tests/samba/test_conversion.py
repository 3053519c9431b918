"""Tensors and models are converted, in place, and as often as an application likes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sambaflow.samba as samba


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.head = nn.Linear(2, 2, bias=False)
        self.head.weight = self.body[0].weight
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x)) * self.scale
        return found


@pytest.mark.parametrize("convert", [samba.from_torch_model_, samba.from_torch_])
def test_names_of_parameters(convert: object) -> None:
    model = _Net()
    before = dict(model.named_parameters())
    assert callable(convert)
    assert convert(model) is None
    assert model.name == "_net"
    for path, parameter in model.named_parameters():
        assert parameter is before[path]
        assert isinstance(parameter, samba.SambaParameter)
        assert isinstance(parameter, nn.Parameter)
        assert parameter.sn_name == "_net__" + path.replace(".", "__")
    assert not model.scale.requires_grad
    assert model.scale.is_leaf


def test_tied_parameters_stay_tied_and_buffers_plain() -> None:
    model = _Net()
    samba.from_torch_model_(model)
    assert model.head.weight is model.body[0].weight
    assert type(model.body[1].running_mean) is torch.Tensor
    assert type(model(torch.randn(3, 2))) is samba.SambaTensor


def test_converting_returns_the_model_and_may_be_repeated() -> None:
    model = _Net()
    assert samba.from_torch_model(model) is model
    weight = model.head.weight
    model.name = "other"
    assert samba.from_torch_model(model) is model
    assert model.head.weight is weight
    assert weight.sn_name == "other__body__0__weight"  # type: ignore[attr-defined]


def test_a_prefix_begins_all_names() -> None:
    """Parts of one model that are of one class have names of their own."""
    parts = {name: _Net() for name in ("image", "text")}
    for name, part in parts.items():
        samba.from_torch_model_(part, name)
        samba.from_torch_model_(part, parent_module_prefix=name)
    assert parts["text"].name == "text___net"
    names = [p.sn_name for part in parts.values() for p in part.parameters()]  # type: ignore[attr-defined]
    assert len({*names}) == len(names)
    assert names[:2] == ["image___net__scale", "image___net__body__0__weight"]
    assert "text___net__body__1__running_mean" in samba.session.buffer_dict
    assert samba.from_torch_model(nn.Linear(2, 2), "head").name == "head__linear"


def test_buffers_are_known_by_name_as_soon_as_a_model_is_converted() -> None:
    model = samba.from_torch_model(_Net())
    found = samba.session.buffer_dict["_net__body__1__running_var"]
    assert type(found) is samba.SambaTensor
    assert found.sn_name == "_net__body__1__running_var"
    model.body[1].running_var[0] = 7
    assert found[0] == 7
    assert samba.session.traced_tensors == {}
    samba.session.reset()
    assert samba.session.buffer_dict == {}


def test_only_models_are_models() -> None:
    with pytest.raises(TypeError, match=r"model is a list; expected a torch.nn.Module"):
        samba.from_torch_model_([])  # type: ignore[arg-type]


@pytest.mark.parametrize("convert", [samba.from_torch_tensor, samba.from_torch])
def test_tensors(convert: object) -> None:
    plain = torch.zeros(2)
    assert callable(convert)
    tensor = convert(
        plain, name="a", batch_dim=0, named_dims=("n",), region_name="r", sized_dims=("s",)
    )
    assert type(tensor) is samba.SambaTensor
    assert (tensor.sn_name, tensor.batch_dim, tensor.named_dims) == ("a", 0, ("n",))
    assert (tensor.sn_region_name, tensor.sized_dims) == ("r", ("s",))
    plain[0] = 3
    assert tensor[0] == 3


def test_a_samba_tensor_stays_as_it_is() -> None:
    tensor = samba.ones(2, name="a")
    assert samba.from_torch_tensor(tensor, name="b") is tensor
    assert tensor.sn_name == "a"


def test_nothing_stays_nothing() -> None:
    assert samba.from_torch_tensor(None) is None
    assert samba.to_torch(None) is None


@pytest.mark.parametrize("convert", [samba.to_torch, samba.to_torch_tensor])
def test_back_to_torch(convert: object) -> None:
    tensor, plain = samba.ones(2), torch.ones(2)
    assert callable(convert)
    found = convert(tensor)
    assert type(found) is torch.Tensor
    assert found.data_ptr() == tensor.data_ptr()
    assert convert(plain) is plain


def test_what_comes_from_torch_and_goes_back_takes_part_in_training_on_the_host() -> None:
    """An output of the device becomes a leaf of a loss on the host."""
    partial_output = samba.to_torch(samba.ones(2, 3))
    partial_output.requires_grad = True
    partial_output.square().sum().backward()
    gradient = samba.from_torch_tensor(partial_output.grad)
    assert gradient is not None
    assert gradient.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_named_dictionaries() -> None:
    plain = torch.ones(2)
    found = samba.from_named_dict({"image": plain, "label": torch.zeros(1)})
    assert {key: tensor.sn_name for key, tensor in found.items()} == {
        "image": "image",
        "label": "label",
    }
    assert found["image"].data_ptr() == plain.data_ptr()


def test_applications_import_tensors_from_their_module() -> None:
    from sambaflow.samba.sambatensor import SambaTensor, from_torch_tensor, to_torch

    assert SambaTensor is samba.SambaTensor
    assert from_torch_tensor is samba.from_torch_tensor
    assert to_torch is samba.to_torch
