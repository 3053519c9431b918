"""Modules at the edge of what can be trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import pef
import sambac
import sambarun

_TRAIN = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))


class _WithNothing(nn.Module):
    """Has a parameter of no elements between others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(3))
        self.nothing = nn.Parameter(torch.ones(0, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.cat([x, self.nothing]) * self.first).sum()


class _Selecting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (self.layer(x)[mask] ** 2).sum()


def test_parameters_without_elements() -> None:
    x = torch.tensor([[1.0, 2, 3]])
    program = sambac.compile(_WithNothing(), _TRAIN, inputs=(x,))
    assert not list(pef.check_program(program))
    with sambarun.load(program) as executable:
        assert executable.step({"x": x.numpy()})["output"] == 6
        state = executable.state()
    assert state["nothing"].shape == (0, 3)
    np.testing.assert_allclose(state["first"], [0.9, 0.8, 0.7], rtol=1e-6)


def test_sizes_that_depend_on_data_are_refused() -> None:
    inputs = (torch.ones(2, 3), torch.tensor([[True, False, True], [False, True, False]]))
    with pytest.raises(sambac.CompileError, match=r"GatherND .* \(the size of its result depends"):
        sambac.compile(_Selecting(), _TRAIN, inputs=inputs)


def test_running_statistics_of_two_names_are_refused() -> None:
    norm = nn.BatchNorm1d(3)
    module = nn.Sequential(norm, nn.Linear(3, 3), norm, nn.Linear(3, 1), nn.Flatten(0))
    with pytest.raises(sambac.CompileError, match=r"writes the buffers 2\.running_mean, .* names"):
        sambac.compile(module, _TRAIN, inputs=(torch.ones(4, 3),))
