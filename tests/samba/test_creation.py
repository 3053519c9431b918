"""Creation functions make what torch makes from equal seeds, under names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import sambaflow.samba as samba

_LIKE = torch.zeros(2, 3, dtype=torch.float64)

_CALLS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[object, ...]]] = {
    "randn": (samba.randn, torch.randn, (2, 3)),
    "randn of a tuple": (samba.randn, torch.randn, ((2, 3),)),
    "randn of a list": (samba.randn, torch.randn, ([2, 3],)),
    "rand": (samba.rand, torch.rand, (2, 3)),
    "zeros": (samba.zeros, torch.zeros, (2, 3)),
    "zeros of no dimension": (samba.zeros, torch.zeros, ((),)),
    "ones": (samba.ones, torch.ones, (2,)),
    "empty": (samba.empty, torch.empty, (0, 3)),
    "full": (samba.full, torch.full, ((2, 3), 1.5)),
    "full of integers": (samba.full, torch.full, ([2], 3)),
    "eye": (samba.eye, torch.eye, (3,)),
    "eye with columns": (samba.eye, torch.eye, (2, 3)),
    "arange": (samba.arange, torch.arange, (4,)),
    "arange with a start": (samba.arange, torch.arange, (1, 4)),
    "arange with a step": (samba.arange, torch.arange, (0.5, 3, 0.5)),
    "randint": (samba.randint, torch.randint, (9, (2, 3))),
    "randint from a limit": (samba.randint, torch.randint, (5, 9, (2, 3))),
    "normal": (samba.normal, torch.normal, (0.5, 2.0, (2, 3))),
    "tensor": (samba.tensor, torch.tensor, ([[1, 2], [3, 4.5]],)),
    "tensor of a number": (samba.tensor, torch.tensor, (3,)),
    "randn_like": (samba.randn_like, torch.randn_like, (_LIKE,)),
    "rand_like": (samba.rand_like, torch.rand_like, (_LIKE,)),
    "zeros_like": (samba.zeros_like, torch.zeros_like, (_LIKE,)),
    "ones_like": (samba.ones_like, torch.ones_like, (_LIKE,)),
    "empty_like": (samba.empty_like, torch.empty_like, (torch.empty(0),)),
    "full_like": (samba.full_like, torch.full_like, (_LIKE, 7)),
}


@pytest.mark.parametrize("case", _CALLS)
def test_values_are_those_of_torch(case: str) -> None:
    ours, theirs, args = _CALLS[case]
    samba.set_seed(3)
    found = ours(*args, name="image", batch_dim=0, named_dims=("n",), sized_dims=("s",))
    torch.manual_seed(3)
    expected = theirs(*args)
    assert isinstance(found, samba.SambaTensor)
    assert found.dtype is expected.dtype
    assert torch.equal(found.data, expected)
    assert (found.sn_name, found.batch_dim) == ("image", 0)
    assert (found.named_dims, found.sized_dims) == (("n",), ("s",))
    assert not found.requires_grad


@pytest.mark.parametrize("case", _CALLS)
def test_types_regions_and_gradients(case: str) -> None:
    ours, _, args = _CALLS[case]
    found = ours(*args, dtype=torch.float32, region_name="r")
    assert isinstance(found, samba.SambaTensor)
    assert found.dtype is torch.float32
    assert found.sn_region_name == "r"
    trainable = ours(*args, dtype=torch.float32, requires_grad=True)
    assert trainable.requires_grad
    assert trainable.is_leaf


def test_sizes_by_keyword() -> None:
    assert samba.zeros(size=(2, 3)).shape == (2, 3)
    found = samba.randint(low=4, high=5, size=(2,), dtype=torch.int16)
    assert found.tolist() == [4, 4]
    assert found.dtype is torch.int16


def test_normal_values_of_means_and_deviations() -> None:
    mean, std = torch.arange(1.0, 11.0), torch.arange(1, 0, -0.1)
    for given in ({"mean": mean, "std": std}, {"mean": 0.5, "std": std}, {"mean": mean}):
        torch.manual_seed(5)
        found = samba.normal(**given, name="noise", region_name="r")  # type: ignore[arg-type]
        torch.manual_seed(5)
        assert torch.equal(found.data, torch.normal(**given))  # type: ignore[call-overload]
        assert (found.sn_name, found.sn_region_name) == ("noise", "r")
    assert samba.normal(2, 3, size=(1, 4)).shape == (1, 4)


def test_a_tensor_like_a_named_one_has_no_name() -> None:
    image = samba.randn(2, name="image", requires_grad=True)
    found = samba.zeros_like(image)
    assert type(found) is samba.SambaTensor
    assert found.sn_name == ""
    assert not found.requires_grad


def test_a_tensor_on_the_meta_device_has_no_data() -> None:
    assert not samba.empty(2, 3, device="meta").has_data


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="batch_dimension"):
        samba.zeros(2, batch_dimension=0)  # type: ignore[call-arg]


@pytest.mark.parametrize("case", _CALLS)
def test_unknown_options_get_a_hint(case: str) -> None:
    ours, _, args = _CALLS[case]
    words = (
        r"\(\) takes no keyword 'nam' \(did you mean 'name'\?\), 'devise' \(did you mean 'device'"
    )
    with pytest.raises(TypeError, match=words):
        ours(*args, nam="x", devise="cpu")


def test_every_argument_has_the_name_that_torch_gives_it() -> None:
    assert samba.eye(n=2, m=3).shape == (2, 3)
    assert samba.tensor(data=[1, 2]).tolist() == [1, 2]
    assert samba.arange(start=1, end=7, step=2).tolist() == [1, 3, 5]
    assert samba.full(size=(2,), fill_value=3).tolist() == [3, 3]
    assert samba.empty(1, 2, 3, 4, memory_format=torch.channels_last).stride() == (24, 1, 8, 2)
    assert samba.zeros(2, layout=torch.strided, pin_memory=False).tolist() == [0, 0]
