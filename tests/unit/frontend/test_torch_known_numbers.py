"""Tensors that `forward` makes of a few numbers decide what is recorded, until they are written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sambac
import sambarun
from sambac.errors import CompileError

X = torch.linspace(-1, 1, 4)


class _Deciding(nn.Module):
    """Two ways, chosen by numbers that `change` has changed."""

    def __init__(self, change: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        numbers = torch.tensor([1.0, 2.0])
        changed = self.change(numbers, x)
        numbers = changed if isinstance(changed, Tensor) else numbers
        return 2 * x if (numbers > 0).all() else 3 * x


def _element(numbers: Tensor, x: Tensor) -> None:
    numbers[0] = -5


def _part(numbers: Tensor, x: Tensor) -> None:
    numbers[1:].mul_(-1)


def _turned(numbers: Tensor, x: Tensor) -> None:
    numbers.view(2, 1).T.neg_()


def _in_list(numbers: Tensor, x: Tensor) -> None:
    torch._foreach_add_([numbers], -3)


def _taken_apart(numbers: Tensor, x: Tensor) -> None:
    numbers.unbind()[0].zero_()


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        (lambda numbers, x: None, 2),
        (lambda numbers, x: numbers[1], 2),
        (lambda numbers, x: numbers - 1.5, 3),
        (_element, 3),
        (_part, 3),
        (_turned, 3),
        (_in_list, 3),
        (_taken_apart, 3),
    ],
)
def test_ways_are_chosen_by_numbers(
    change: Callable[[Tensor, Tensor], object], factor: int
) -> None:
    with sambarun.load(sambac.compile(_Deciding(change), inputs=(X,))) as executable:
        (found,) = executable.run({"x": X.numpy()}).values()
    np.testing.assert_allclose(found, factor * X.numpy())


@pytest.mark.parametrize(
    "change",
    [
        lambda numbers, x: numbers.copy_(x[:2]),
        lambda numbers, x: numbers * x[:2],
        lambda numbers, x: torch.bernoulli(numbers / 4),
    ],
)
def test_what_else_they_are_made_of_decides_nothing(
    change: Callable[[Tensor, Tensor], object],
) -> None:
    with pytest.raises(CompileError, match="control flow depends on the values of tensors"):
        sambac.compile(_Deciding(change), inputs=(X,))
