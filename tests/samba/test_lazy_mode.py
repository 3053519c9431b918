"""The mode in which modules are built without values: its beginning and its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from sambaflow.samba import lazy_param as lazy


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    lazy.disable_lazy_param()


def test_a_block_builds_without_values_and_ends() -> None:
    with lazy.lazy_param():
        assert lazy.use_lazy_param()
        assert nn.Linear(2, 2).weight.is_meta
    assert not lazy.use_lazy_param()
    assert not nn.Linear(2, 2).weight.is_meta


def test_a_block_inside_enabled_mode_does_not_end_it() -> None:
    lazy.enable_lazy_param()
    with lazy.lazy_param():
        pass
    assert nn.Linear(2, 2).weight.is_meta


def test_enabling_again_takes_new_options_and_is_ended_once() -> None:
    values = []
    for seed in (1, 2):
        lazy.enable_lazy_param(seed=seed)
        values.append(nn.Linear(2, 2).weight)
    lazy.disable_lazy_param()
    assert not nn.Linear(2, 2).weight.is_meta
    lazy.enable_lazy_param(seed=2)
    values.append(nn.Linear(2, 2).weight)
    first, second, again = (value.torch_tensor() for value in values)
    assert torch.equal(second, again)
    assert not torch.equal(first, second)


def test_the_mode_ends_when_a_constructor_fails() -> None:
    with pytest.raises(ZeroDivisionError), lazy.lazy_param():
        1 / 0  # noqa: B018  # what fails is the point
    assert not nn.Linear(2, 2).weight.is_meta


def test_resetting_repeats_the_values() -> None:
    lazy.enable_lazy_param(seed=1)
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    lazy.reset_random_generator()
    third = nn.Linear(3, 3)
    assert not torch.equal(first.weight.torch_tensor(), second.weight.torch_tensor())
    assert torch.equal(first.weight.torch_tensor(), third.weight.torch_tensor())
