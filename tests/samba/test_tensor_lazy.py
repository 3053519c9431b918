"""SambaTensors without values: what they know, how they get values and lose them again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import sambaflow.samba as samba


def test_a_tensor_without_data() -> None:
    tensor = samba.SambaTensor(shape=iter((2, 3)), dtype=torch.bfloat16, name="a")
    assert not tensor.has_data
    assert tensor.shape == (2, 3)
    assert tensor.dtype is torch.bfloat16
    assert not tensor.materializer_provided
    assert (tensor + 1).shape == (2, 3)
    with pytest.raises(samba.SambaError, match="a has no data, and no materializer"):
        tensor.materialize_()
    tensor.data = torch.ones(2, 3)
    assert tensor.has_data
    assert tensor.sn_name == "a"
    assert tensor.sum() == 6


def test_clearing_data() -> None:
    tensor = samba.ones(2, 3, name="a", requires_grad=True)
    tensor.clear_data()
    assert not tensor.has_data
    assert (tensor.shape, tensor.dtype) == ((2, 3), torch.float32)
    assert tensor.requires_grad
    assert tensor.sn_name == "a"
    tensor.clear_data()


def test_data_in_use_cannot_be_cleared() -> None:
    tensor = samba.ones(2, name="a", requires_grad=True)
    loss = (tensor * 2).sum()
    with pytest.raises(samba.SambaError, match="memory of a cannot be exchanged"):
        tensor.clear_data()
    loss.backward()
    assert tensor.grad is not None
    del loss
    tensor.clear_data()


@pytest.mark.parametrize(
    "materializer",
    [
        lambda tensor, rng: torch.full(tensor.shape, 2.0),
        # The page's type has a tensor and random numbers, its text these three: both work.
        lambda shape, dtype, requires_grad: torch.full(shape, 2.0, dtype=dtype),
    ],
)
def test_materializing(materializer: Callable[..., Tensor]) -> None:
    tensor = samba.SambaTensor(shape=(2,), dtype=torch.bfloat16)
    tensor.materializer = materializer
    assert tensor.materializer_provided
    assert tensor.materializer is materializer
    assert tensor.torch_tensor().tolist() == [2, 2]
    assert not tensor.has_data
    tensor.materialize_()
    assert tensor.data.tolist() == [2, 2]
    assert tensor.dtype is torch.bfloat16
    tensor[0] = 1
    tensor.materialize_()
    assert tensor.tolist() == [1, 2]


def test_a_materializer_of_the_wrong_shape() -> None:
    tensor = samba.SambaTensor(
        shape=(2,), name="a", materializer=lambda tensor, rng: torch.zeros(3)
    )
    with pytest.raises(samba.SambaError, match=r"of a made a tensor of shape \(3,\), expected"):
        tensor.materialize_()
