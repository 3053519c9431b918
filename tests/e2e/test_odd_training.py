"""Modules at the edge of what can be trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from near import assert_near, exactly
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
        return (self.layer(x)[mask].cumsum(0) ** 2).sum()


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
    with pytest.raises(
        sambac.CompileError,
        match=r"GatherND .* \(the size of its result depends.*where\(mask, x, 0\) keeps",
    ):
        sambac.compile(_Selecting(), _TRAIN, inputs=inputs)


def test_running_statistics_of_two_names_are_refused() -> None:
    norm = nn.BatchNorm1d(3)
    module = nn.Sequential(norm, nn.Linear(3, 3), norm, nn.Linear(3, 1), nn.Flatten(0))
    with pytest.raises(sambac.CompileError, match=r"writes the buffers 2\.running_mean, .* names"):
        sambac.compile(module, _TRAIN, inputs=(torch.ones(4, 3),))


class _Shifted(nn.Module):
    """A product and a row with an axis of 1, whose gradient is a product of matrices."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w, self.b = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.w + self.b).square().mean()


def test_gradients_of_a_row_with_an_axis_add_up() -> None:
    model, options = _Shifted(), sambac.CompileOptions(train=True, accumulate=True)
    batches = [torch.randn(1, 3, 6) for _ in range(2)]
    program = sambac.compile(model, options, inputs=(batches[0],))
    with sambarun.load(program) as executable:
        for batch in batches:
            executable.run({"x": batch.numpy()}, section_types=("FWD", "BCKWD"), train=True)
        found = executable.read("b__grad", "w__grad")
    twin = exactly(model)
    for batch in batches:
        twin(exactly(batch)).backward()
    assert_near(found["b__grad"], twin.b.grad, 1e-5)
    assert_near(found["w__grad"], twin.w.grad, 1e-5)


class _Looking(nn.Module):
    """A table whose gradient adds up on zeros that look like those that clear it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(5, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.table(rows).square().sum()


@pytest.mark.parametrize("options", [{"level": "O0"}, {"memory": {"table.weight": "DDR"}}], ids=str)
def test_gradients_of_tables_add_up_apart_from_others(options: dict[str, Any]) -> None:
    model, rows = _Looking(), torch.tensor([[0, 1, 1], [4, 1, 0]])
    options = sambac.CompileOptions(train=True, accumulate=True, **options)
    program = sambac.compile(model, options, inputs=(rows[0],))
    with sambarun.load(program) as executable:
        for row in rows:
            executable.run({"rows": row.numpy()}, section_types=("FWD", "BCKWD"), train=True)
        found = executable.read("table.weight__grad")
    twin = exactly(model)
    for row in rows:
        twin(row).backward()
    assert_near(found["table.weight__grad"], twin.table.weight.grad, 1e-5)


class _Limited(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, 0.5, -2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.hardtanh(self.weight * x, -0.1, 0.7).sum()


def test_no_gradient_passes_limits_that_rounding_moves_the_result_from() -> None:
    """Of 0.7 bfloat16 has 0.699, which is below the limit."""
    options = sambac.CompileOptions(train=True, precision="bfloat16")
    program = sambac.compile(_Limited(), options, inputs=(torch.ones(3),))
    with sambarun.load(program) as executable:
        executable.run({"x": np.ones(3, "f")}, section_types=("FWD", "BCKWD"), train=True)
        found = executable.read("weight__grad")
    assert found["weight__grad"].tolist() == [0, 1, 0]
