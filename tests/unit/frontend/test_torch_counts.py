"""Numbers that a module counts up, which a program would not: each of its runs is the first."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions


class _Progress:
    def __init__(self) -> None:
        self.share = 1.0


class _Counting(nn.Module):
    """Counts in attributes of its own, in collections, and in objects that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.calls, self.seen, self.progress = 2, [0, 5], _Progress()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen[0] += 2
        self.progress.share *= 0.5
        return (x * self.weight * self.calls * self.progress.share).sum()


@pytest.mark.parametrize("train", [False, True])
def test_numbers_that_change_are_told(train: bool) -> None:
    module = nn.Sequential(_Counting())
    words = (
        r"finds as they were before: "
        r"_Counting\.calls = 2, _Counting\.seen\[0\] = 0, _Counting\.progress\.share = 1\.0; "
        r"if results depend on them, let them be buffers, with register_buffer\(\)"
    )
    with pytest.warns(UserWarning, match=words) as told:
        load(module, CompileOptions(train=train), (torch.ones(3),))
    assert [warning.filename for warning in told] == [__file__]
    assert (module[0].calls, module[0].seen, module[0].progress.share) == (2, [0, 5], 1.0)


class _Settled(nn.Module):
    """What it sets is the same in each call, or says that something is there now."""

    def __init__(self) -> None:
        super().__init__()
        self.width, self.made, self.late, self.scale = 3, False, None, 1
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.made:
            self.mask, self.made = torch.ones(3), True
        self.width, self.late, self.scale = x.shape[0], x.shape[0], 1.0
        self.calls += 1
        return (x * self.mask * self.scale).sum()


@pytest.mark.parametrize("train", [False, True])
def test_what_is_the_same_in_each_call_is_not(train: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(_Settled(), CompileOptions(train=train), (torch.ones(3),))


class _Step:
    """What an input may be that holds no tensors."""

    def __init__(self) -> None:
        self.number, self.seen = 3, [0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Step)

    def __hash__(self) -> int:
        return 1


pytree.register_constant(_Step)


class _Stepped(nn.Module):
    """Counts in what it is given."""

    def forward(self, x: torch.Tensor, step: _Step) -> torch.Tensor:
        step.number += 1
        step.seen[0] += 1
        return x * step.number


def test_what_counts_in_its_inputs_is_refused() -> None:
    step = _Step()
    with pytest.raises(CompileError, match="a later call of _Stepped does not do what the first"):
        load(_Stepped(), CompileOptions(), (torch.ones(3), step))
    assert (step.number, step.seen) == (3, [0])


class _Beginning(nn.Module):
    """Begins to count anew in each mode, in another dict of the attributes of what it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = _Progress()

    def train(self, mode: bool = True) -> _Beginning:
        self.progress.__dict__ = {"share": 1.0}
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.progress.share *= 0.5
        return x * self.progress.share


def test_what_another_mode_brings_is_looked_into() -> None:
    module = _Beginning()
    with pytest.warns(UserWarning, match=r"before: _Beginning\.progress\.share = 1\.0; "):
        load(module, CompileOptions(), (torch.ones(3),))
    assert module.progress.share == 1.0


class _Armed:
    """What can be told from others only as long as it is new."""

    is_new = True

    def __hash__(self) -> int:
        if not self.is_new:
            raise ValueError("it has no hash any more")
        return 1


@pytest.mark.parametrize("train", [False, True])
def test_what_cannot_be_looked_into_is_the_users_error(train: bool) -> None:
    module, armed = nn.Linear(3, 1), _Armed()
    module.kept = {armed}
    armed.is_new = False
    with pytest.raises(CompileError, match=r"Linear cannot be exported.*it has no hash any more"):
        load(module, CompileOptions(train=train), (torch.ones(1, 3),))
