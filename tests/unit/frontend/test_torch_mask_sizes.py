"""Sizes that masks decide, where they are no plain number of rows: trained right, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from near import assert_near, exactly
from torch import Tensor, nn
from torch.nn import functional

import sambac
import sambarun
from sambac.errors import CompileError

Function = Callable[[Tensor, Tensor, Tensor], Tensor]

_A, _B = (torch.randn(5, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
_TRAIN = sambac.CompileOptions(train=True)


class Net(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.tensor([0.5, -1.5, 2.0, 1.0]))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.function(a * self.w, b, self.w)


def _rows(y: Tensor, b: Tensor) -> Tensor:
    return y[b.sum(1) > 0].softmax(1)


def _number(y: Tensor, b: Tensor) -> int:
    return y[b.sum(1) > 0].shape[0]


def _in_another_order(y: Tensor, b: Tensor, w: Tensor) -> Tensor:
    zeros = y.new_zeros(_number(y, b), 4)
    first, last = torch.cat([zeros, b + 3]), torch.cat([b, _rows(y, b)])
    return (first * last).exp().sum()


def _of_places(y: Tensor, b: Tensor, w: Tensor) -> Tensor:
    places = torch.where(b[:1] > 0)
    return y[places].exp().sum()


@pytest.mark.parametrize(
    "function",
    [
        lambda y, b, w: _rows(y, b).amax() / torch.sym_min(_number(y, b), 3),
        lambda y, b, w: _rows(y, b).amax() * (_number(y, b) // 3 + 1),
        lambda y, b, w: _rows(y, b).amax() * (_number(y, b) % 3 + 1),
        lambda y, b, w: _rows(y, b).sum() / (_number(y, b) + _number(y, -b)),
        lambda y, b, w: (y.new_full((4,), _number(y, b)) * _rows(y, b)).sum(),
        lambda y, b, w: (torch.full_like(x := _rows(y, b), x.shape[0]) * x).sum(),
        lambda y, b, w: _rows(y, b)[:3].square().sum(),
        lambda y, b, w: _rows(y, b)[-2:].square().sum(),
        _in_another_order,
        _of_places,
        lambda y, b, w: functional.dropout(y[b.sum(1) > 0]).cumsum(0).sum(),
    ],
    ids=[
        *("least", "part", "rest", "two masks", "filled", "filled alike", "first rows"),
        *("last rows", "another order", "places of less", "dropped"),
    ],
)
def test_numbers_of_rows_that_are_no_plain_ones_are_refused(function: Function) -> None:
    with pytest.raises(CompileError, match=r"no gradient flows|its size depends on data"):
        sambac.compile(Net(function), _TRAIN, inputs=(_A, _B))


def _beside_none(y: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Slopes that are no numbers at what stands where nothing is selected."""
    rows = y[b.sum(1) > 0].detach().sigmoid()
    most = rows.amax(1)
    steep = (w[0] - most).sqrt() + (w[1] - most).log() + w[2] / (most - rows.amin(1))
    return steep.sum() + ((rows - rows.amax(1, keepdim=True)) * w[3]).norm(dim=1).sum() + y.sum()


def _behind_others(y: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Rows that no mask selects, behind those that one does, keep their gradients."""
    rows = torch.cat([_rows(y, b), b.sigmoid()]) * w.square()
    return rows.sqrt().sum(1).mean() + (w / (rows + 1)).mean()


def _beside_ones(y: Tensor, b: Tensor, w: Tensor) -> Tensor:
    rows = _rows(y, b)
    return functional.mse_loss(torch.ones_like(rows), rows)


def _put_back(y: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """One number for each row."""
    most = _rows(y, b).amax(1, keepdim=True)
    return torch.index_put(y, (b.sum(1) > 0,), most * w[0]).mean()


@pytest.mark.parametrize(
    ("function", "b"),
    [
        (lambda y, b, w: _rows(y, b).square().sum() / (2 * (_number(y, b) + 1)), _B),
        (_beside_ones, _B),
        (_put_back, _B),
        (_beside_none, -_B.abs()),
        (_behind_others, _B),
        (_behind_others, -_B.abs()),
        (lambda y, b, w: y[(b.sum(1) > 0)[:4].nonzero().squeeze(1)].square().sum(), _B),
        (lambda y, b, w: y.index_select(0, (b.sum(1) > 0)[:4].nonzero()[:, 0]).sin().sum(), _B),
    ],
    ids=[
        *("line", "beside ones", "broadcast", "beside none", "behind others", "behind none"),
        *("fewer places", "fewer along"),
    ],
)
def test_losses_of_rows_train(function: Function, b: Tensor) -> None:
    exact = exactly(Net(function))
    loss = exact(*exactly((_A, b)))
    loss.backward()
    with sambarun.load(sambac.compile(Net(function), _TRAIN, inputs=(_A, _B))) as executable:
        (found,) = executable.run({"a": _A.numpy(), "b": b.numpy()}).values()
        assert_near(found, loss)
        assert exact.w.grad is not None
        assert_near(executable.read("w__grad")["w__grad"], exact.w.grad, what="gradient")
