"""Counts of steps: torch has one for each parameter, the device one for each group."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from near import assert_near, exactly
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import utils

_PLACES = ["first", "last"]


class _Net(nn.Module):
    """A layer, and one beside it that nothing reads: before it, or behind it."""

    def __init__(self, unused: str) -> None:
        super().__init__()
        for name in ("idle", "layer") if unused == "first" else ("layer", "idle"):
            setattr(self, name, nn.Linear(4, 3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.layer(x), y)


def _batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 4, generator=generator), torch.randn(5, 3, generator=generator)


def _named(seed: int) -> tuple[samba.SambaTensor, ...]:
    return tuple(samba.SambaTensor(t, name=n) for t, n in zip(_batch(seed), "xy", strict=True))


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> Tensor:
    dtype = next(model.parameters()).dtype
    optimizer.zero_grad()
    loss = model(*(item.to(dtype) for item in _batch(seed)))
    loss.backward()
    optimizer.step()
    return loss.detach()


def _traced(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> tuple[Tensor, ...]:
    config = {"output_folder": str(folder)}
    pef = samba.session.compile(model, _named(0), optimizer, config_dict=config)
    return utils.trace_graph(model, _named(0), optimizer, pef=pef)


def _compare_steps(model: nn.Module, twin: nn.Module, theirs, outputs, seeds: range) -> None:
    for seed in seeds:
        (loss,) = samba.session.run(_named(seed), outputs)
        assert_near(loss.data, _step(twin, theirs, seed), what=f"loss {seed}")
    samba.session.to_cpu(model)
    assert_near(model.layer.weight.data, twin.layer.weight.data, what="weight")


@pytest.mark.parametrize("unused", _PLACES)
def test_a_checkpoint_of_torch_counts_as_what_is_updated_does(unused: str, tmp_path: Path) -> None:
    """Torch keeps nothing of a parameter that has had no gradient: not that no step was taken."""
    torch.manual_seed(0)
    model = _Net(unused)
    twin = exactly(model)
    theirs = torch.optim.Adam(twin.parameters(), 0.05)
    for seed in range(3):
        _step(twin, theirs, seed)
    model.load_state_dict(twin.state_dict())
    samba.from_torch_model_(model)
    ours = samba.optim.Adam(model.parameters(), 0.05)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    _compare_steps(model, twin, theirs, _traced(model, ours, tmp_path), range(3, 6))


@pytest.mark.parametrize("unused", _PLACES)
def test_a_step_on_the_host_counts(unused: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = _Net(unused)
    twin = exactly(model)
    theirs = torch.optim.Adam(twin.parameters(), 0.05)
    samba.from_torch_model_(model)
    ours = samba.optim.Adam(model.parameters(), 0.05)
    outputs = _traced(model, ours, tmp_path)
    _compare_steps(model, twin, theirs, outputs, range(2))
    samba.session.to_cpu(model, ours)
    model.idle.weight.grad = model.idle.bias.grad = None
    for seed in (2, 3):
        _step(model, ours, seed)
        _step(twin, theirs, seed)
    samba.session.to_rdu(model, ours)
    _compare_steps(model, twin, theirs, outputs, range(4, 6))


def test_counts_that_differ_in_a_group_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = samba.from_torch_model(_Net("last"))
    optimizer = samba.optim.Adam(model.parameters(), 0.05)
    _traced(model, optimizer, tmp_path)
    optimizer.state[model.layer.bias]["step"] = torch.tensor(5.0)
    told = r"counts 0 steps of '_?net__layer__weight' and 5 of '_?net__layer__bias'.*make groups"
    with pytest.raises(samba.SambaError, match=told):
        samba.session.to_rdu(model, optimizer)
    optimizer.state[model.layer.weight]["step"] = torch.tensor(5.0)
    samba.session.to_rdu(model, optimizer)
