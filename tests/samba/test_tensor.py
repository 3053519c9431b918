"""Every member of SambaTensor that SambaFlow's page documents, beside what torch does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import sambaflow.samba as samba

_X = torch.arange(6.0).reshape(2, 3)

_CASTS = {
    "bfloat16": torch.bfloat16,
    "bool": torch.bool,
    "float": torch.float32,
    "int": torch.int32,
    "long": torch.int64,
    "short": torch.int16,
    "half": torch.float16,
    "double": torch.float64,
}

_SAME_AS_TORCH: dict[str, Callable[[Tensor], object]] = {
    "data_ptr": lambda x: x.data_ptr(),
    "dim": lambda x: x.dim(),
    "element_size": lambda x: x.element_size(),
    "is_floating_point": lambda x: x.is_floating_point(),
    "is_floating_point of integers": lambda x: x.int().is_floating_point(),
    "item": lambda x: x[1, 2].item(),
    "ndimension": lambda x: x.ndimension(),
    "nelement": lambda x: x.nelement(),
    "numel": lambda x: x.numel(),
    "size": lambda x: x.size(),
    "size of a dimension": lambda x: x.size(dim=1),
    "size of a dimension by position": lambda x: x.size(-1),
    "stride": lambda x: x.stride(),
    "stride of a dimension": lambda x: x.stride(dim=0),
    "type": lambda x: x.type(),
    "device": lambda x: x.device,
    "dtype": lambda x: x.dtype,
    "ndim": lambda x: x.ndim,
    "shape": lambda x: x.shape,
    "requires_grad": lambda x: x.requires_grad,
    "tolist": lambda x: x.tolist(),
    "len": len,
}

_TENSORS_AS_TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "new_empty": lambda x: x.new_empty((0, 2)),
    "new_empty of one size": lambda x: x.new_empty(0),
    "new_full": lambda x: x.new_full((2, 2), 3),
    "new_ones": lambda x: x.new_ones(3),
    "new_ones of a type": lambda x: x.new_ones((3, 1), dtype=torch.int8),
    "new_zeros": lambda x: x.new_zeros(3),
    "new_zeros of a type": lambda x: x.new_zeros((3, 1), dtype=torch.bool),
    "permute": lambda x: x.permute(1, 0),
    "permute by a tuple": lambda x: x.permute((1, 0)),
    "reshape": lambda x: x.reshape(3, -1),
    "reshape by a tuple": lambda x: x.reshape((6,)),
    "view_as": lambda x: x.view_as(torch.zeros(3, 2)),
    "type_as": lambda x: x.type_as(torch.zeros(1, dtype=torch.int8)),
    "to a type": lambda x: x.to(torch.float16),
    "to a type by keyword": lambda x: x.to(dtype=torch.float16),
    "to another tensor": lambda x: x.to(torch.zeros(1, dtype=torch.float64)),
    "T": lambda x: x.T,
    "an integer": lambda x: x[1],
    "a slice": lambda x: x[:, 1:],
    "None": lambda x: x[None],
    "a list": lambda x: x[:, [0, 2]],
    "an ellipsis": lambda x: x[..., 0],
    "a mask": lambda x: x[x > 2],
    "indices of many dimensions": lambda x: x[torch.tensor([[0, 1], [1, 0]])],
    "several indices": lambda x: x[torch.tensor([0, 1]), torch.tensor([2, 0])],
}


@pytest.mark.parametrize("member", _SAME_AS_TORCH)
def test_facts_are_those_of_torch(member: str) -> None:
    ask = _SAME_AS_TORCH[member]
    found, expected = ask(samba.SambaTensor(_X)), ask(_X)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("member", _TENSORS_AS_TORCH)
def test_tensors_are_those_of_torch(member: str) -> None:
    make = _TENSORS_AS_TORCH[member]
    found, expected = make(samba.SambaTensor(_X)), make(_X)
    assert type(found) is samba.SambaTensor
    assert found.dtype is expected.dtype
    assert torch.equal(found.data, expected)


@pytest.mark.parametrize("cast", _CASTS)
def test_casts(cast: str) -> None:
    for kind in (torch.float32, torch.float64):
        found = getattr(samba.SambaTensor(_X.to(kind)), cast)()
        assert type(found) is samba.SambaTensor
        assert found.dtype is _CASTS[cast]
        assert torch.equal(found.data, _X.to(_CASTS[cast]))


def test_a_cast_to_the_same_type_is_the_same_object() -> None:
    tensor = samba.SambaTensor(_X)
    assert tensor.float() is tensor
    assert tensor.type(torch.float32) is tensor
    assert tensor.type_as(tensor=_X) is tensor
    assert tensor.to(torch.float32) is tensor


def test_type_takes_types_and_their_names() -> None:
    tensor = samba.SambaTensor(_X)
    assert tensor.type() == "torch.FloatTensor"
    for wanted in (torch.float64, "torch.DoubleTensor"):
        found = tensor.type(wanted)
        assert isinstance(found, samba.SambaTensor)
        assert found.dtype is torch.float64


@pytest.mark.parametrize("keyword", ["non_blocking", "async", "whatever"])
def test_type_refuses_what_no_device_obeys(keyword: str) -> None:
    with pytest.raises(ValueError, match=f"does not take {keyword}"):
        samba.SambaTensor(_X).type(torch.float64, **{keyword: True})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["new_empty", "new_ones", "new_zeros"])
def test_a_type_and_a_gradient_come_behind_the_sizes(name: str) -> None:
    """As documented; torch has them by keyword alone."""
    make = getattr(samba.ones(2, dtype=torch.float16), name)
    assert make((2, 3)).dtype is torch.float16
    assert make(3, torch.int64).dtype is torch.int64
    assert make((2, 3), torch.float64, True).requires_grad
    assert make([2], None, requires_grad=True).requires_grad
    assert make(size=(2,), dtype=torch.int8).dtype is torch.int8
    assert make(2, 3).shape == make((2, 3)).shape == (2, 3)
    assert type(make(2, 3, dtype=torch.bool)) is samba.SambaTensor


def test_new_full_ignores_the_device() -> None:
    # Torch would say that it was not built for such a device.
    found = samba.SambaTensor(_X).bfloat16().new_full((2,), 1.5, device="cuda")
    assert found.tolist() == [1.5, 1.5]
    assert found.device.type == "cpu"
    assert found.dtype is torch.bfloat16
    assert not found.requires_grad
    assert found.new_full((2,), 1, torch.float32, None, True).requires_grad


@pytest.mark.parametrize("make", ["new_empty", "new_ones", "new_zeros"])
def test_new_tensors_may_require_a_gradient(make: str) -> None:
    tensor = samba.SambaTensor(_X)
    assert not getattr(tensor, make)((2,)).requires_grad
    assert getattr(tensor, make)((2,), requires_grad=True).requires_grad
    assert tensor.new_full((2,), 1, requires_grad=True).requires_grad


def test_requires_grad() -> None:
    tensor = samba.ones(2)
    # The page's signature says None, its text that the tensor is returned: as torch does.
    assert tensor.requires_grad_() is tensor
    assert tensor.requires_grad
    assert not tensor.requires_grad_(False).requires_grad
    tensor.requires_grad = True
    assert tensor.requires_grad


def test_backward() -> None:
    tensor = samba.ones(2, requires_grad=True)
    (tensor * 3).backward(torch.tensor([1.0, 2.0]), retain_graph=True)
    assert tensor.grad is not None
    assert tensor.grad.tolist() == [3, 6]
    (tensor * 3).sum().backward()
    assert tensor.grad.tolist() == [6, 9]
    (tensor * 3).backward(gradient=samba.ones(2))
    assert tensor.grad.tolist() == [9, 12]


def test_retaining_the_graph() -> None:
    tensor = samba.ones(2, requires_grad=True)
    loss = (tensor * tensor).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_are_plain_and_settable() -> None:
    tensor = samba.ones(2, requires_grad=True)
    assert tensor.grad is None
    tensor.grad = samba.zeros(2)
    assert tensor.grad is not None
    assert tensor.grad.tolist() == [0, 0]
    tensor.sum().backward()
    assert type(tensor.grad) is not samba.SambaParameter
    assert tensor.grad.tolist() == [1, 1]
    tensor.grad = None
    assert tensor.grad is None


def test_data_shares_memory() -> None:
    tensor = samba.zeros(2, requires_grad=True)
    assert type(tensor.data) is Tensor
    assert not tensor.data.requires_grad
    tensor.data[0] = 4
    assert tensor.tolist() == [4, 0]
    tensor.data = torch.ones(2)
    assert tensor.tolist() == [1, 1]


@pytest.mark.parametrize("value", [torch.tensor([1.0, 2.0, 3.0]), samba.tensor([1, 2, 3])])
def test_data_is_settable(value: Tensor) -> None:
    tensor = samba.zeros(2, name="a")
    tensor.data = value
    assert tensor.tolist() == [1, 2, 3]
    assert tensor.dtype is value.dtype
    assert tensor.sn_name == "a"
    value.data[0] = 9
    assert tensor[0] == 9
    value.data[0] = 1


def test_torch_is_what_the_tensor_was_made_from() -> None:
    plain = torch.zeros(2)
    tensor = samba.SambaTensor(plain)
    for found in (tensor.torch(), tensor.torch_tensor(), samba.to_torch(tensor)):
        assert type(found) is Tensor
        assert found.data_ptr() == plain.data_ptr()


def test_torch_has_the_gradient_and_passes_gradients_on() -> None:
    tensor = samba.ones(2, requires_grad=True)
    (tensor.torch() * 2).sum().backward()
    assert tensor.grad is not None
    assert tensor.grad.tolist() == [2, 2]
    found = tensor.torch().grad
    assert found is not None
    assert found.tolist() == [2, 2]


def test_item_assignment_of_numbers_and_tensors() -> None:
    tensor = samba.zeros(2, 3)
    tensor[0, 0] = 1
    tensor[1] = torch.tensor([2.0, 3.0, 4.0])
    tensor[0, 1:] = 5.0
    assert tensor.tolist() == [[1, 5, 5], [2, 3, 4]]


def test_index_tensors_of_floating_point_types() -> None:
    index = samba.tensor([0.0, 2.0])
    tensor = samba.SambaTensor(_X.clone())
    assert torch.equal(tensor[:, index].data, _X[:, [0, 2]])
    assert torch.equal(_X[:, index].data, _X[:, [0, 2]])
    tensor[1, index] = 9
    assert tensor[1].tolist() == [9, 4, 9]


def test_indices_that_are_not_whole() -> None:
    with pytest.raises(IndexError, match="not whole"):
        samba.ones(2)[samba.tensor([0.5])]


def test_reusable_memory_is_contiguous() -> None:
    tensor = samba.ones(2, 3)
    assert tensor.reusable()
    transposed = tensor.T
    assert isinstance(transposed, samba.SambaTensor)
    assert not transposed.reusable()
    assert not samba.SambaTensor(shape=(2,)).reusable()


def test_parameters_of_the_constructor() -> None:
    tensor = samba.SambaTensor(
        _X,
        name="a",
        batch_dim=0,
        named_dims=["batch", None],
        sized_dims=("x", "y"),
        materializer=None,
        is_complex=False,
        region_name="r",
    )
    assert tensor.sn_name == "a"
    assert tensor.batch_dim == 0
    assert tensor.named_dims == ("batch", None)
    assert tensor.sized_dims == ("x", "y")
    assert tensor.sn_region_name == "r"
    assert tensor.materializer is None


@pytest.mark.parametrize("facts", [{}, {"dtype": torch.float32}])
def test_a_tensor_of_nothing(facts: dict[str, torch.dtype]) -> None:
    with pytest.raises(ValueError, match="from a torch tensor, or from shape and dtype"):
        samba.SambaTensor(**facts)  # type: ignore[arg-type]


def test_a_tensor_of_two_things() -> None:
    with pytest.raises(ValueError, match="give the one or the other"):
        samba.SambaTensor(_X, shape=(2, 3))
    with pytest.raises(ValueError, match="give the one or the other"):
        samba.SambaTensor(_X, dtype=torch.float32)


def test_a_tensor_of_a_list() -> None:
    with pytest.raises(TypeError, match=r"got a list; samba.tensor\(\) takes numbers"):
        samba.SambaTensor([1, 2])  # type: ignore[arg-type]


def test_names() -> None:
    tensor = samba.ones(2)
    assert tensor.sn_name == ""
    assert tensor.sn_region_name == ""
    tensor.sn_name = "a"
    assert tensor.sn_region_name == "a"


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.bfloat16().float(),
        lambda x: x.to(torch.int32),
        lambda x: x.type(torch.float64),
        lambda x: x.type_as(_X.int()),
        lambda x: x.detach(),
        lambda x: x.contiguous(memory_format=torch.contiguous_format),
    ],
)
def test_an_input_of_another_type_keeps_its_name(
    change: Callable[[samba.SambaTensor], samba.SambaTensor],
) -> None:
    tensor = samba.randn(2, 3, name="image", batch_dim=0, region_name="r")
    found = change(tensor)
    assert (found.sn_name, found.batch_dim, found.sn_region_name) == ("image", 0, "r")


def test_results_have_no_name() -> None:
    tensor = samba.randn(2, 3, name="image")
    for found in (tensor + 1, tensor.T, tensor[0], tensor.clone(), torch.relu(tensor)):
        assert isinstance(found, samba.SambaTensor)
        assert found.sn_name == ""


def test_repr() -> None:
    text = repr(samba.tensor(1.25, name="loss"))
    assert text == (
        "tensor(1.2500) samba.SambaTensor(name: loss, shape: torch.Size([]), "
        "dtype: torch.float32, batch_dim: None, named_dims: (), keep_data: True, "
        "materializer_provided: False)"
    )
    assert "requires_grad=True" in repr(samba.ones(1, requires_grad=True))
    assert "keep_data: False" in repr(samba.SambaTensor(shape=(2,)))
    unnamed = samba.ones(1)
    assert f"name: sambatensor_{id(unnamed)}" in repr(unnamed)
