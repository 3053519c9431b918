"""Gradients of reductions and running sums, against torch and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gradient_check import Case, check_against_torch, check_finite_differences

Array = np.ndarray[Any, np.dtype[Any]]

X = np.random.default_rng(0).normal(size=(2, 3, 4))
ABOVE = np.random.default_rng(1).uniform(0.5, 2, (2, 3, 4))
ZEROS = ABOVE * np.array([[[1], [1], [0]], [[1], [0], [0]]])
Reduce = Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor]


def product(x: torch.Tensor, axes: tuple[int, ...], keep: bool) -> torch.Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


REDUCTIONS: dict[str, tuple[Array, Reduce]] = {
    "ReduceL1": (X, lambda x, axes, keep: x.abs().sum(axes, keep)),
    "ReduceL2": (X, lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep)),
    "ReduceLogSum": (ABOVE, lambda x, axes, keep: x.sum(axes, keep).log()),
    "ReduceLogSumExp": (X, torch.logsumexp),
    "ReduceMax": (X, torch.amax),
    "ReduceMean": (X, torch.mean),
    "ReduceMin": (X, torch.amin),
    "ReduceProd": (X, product),
    "ReduceSum": (X, torch.sum),
    "ReduceSumSquare": (X, lambda x, axes, keep: x.square().sum(axes, keep)),
}


# Without axes, `noop_with_empty_axes` folds each element alone.
ALONE: dict[str, tuple[Array, Callable[[torch.Tensor], torch.Tensor]]] = {
    "ReduceL1": (X, torch.abs),
    "ReduceL2": (X, torch.abs),
    "ReduceLogSum": (ABOVE, torch.log),
    "ReduceSumSquare": (X, torch.square),
    **dict.fromkeys(("ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"), (X, torch.clone)),
    **dict.fromkeys(("ReduceProd", "ReduceSum"), (X, torch.clone)),
}  # fmt: skip


def reduction(op: str, axes: tuple[int, ...] | None, keep: bool) -> Case:
    array, function = REDUCTIONS[op]
    inputs = (array,) if axes is None else (array, np.array(axes))
    over = tuple(range(3)) if axes is None else axes
    label = f"{'all' if axes is None else axes}-{'kept' if keep else 'dropped'}"
    return Case(op, inputs, lambda x, _=None: function(x, over, keep), {"keepdims": int(keep)},
                label=label)  # fmt: skip


def running(**attributes: int) -> Case:
    def cumulated(x: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
        order = (1,) if attributes.get("reverse") else ()
        sums = x.flip(order).cumsum(1).flip(order)
        return sums - x if attributes.get("exclusive") else sums

    return Case("CumSum", (X, np.array(1)), cumulated, attributes, label="-".join(attributes))


CASES = [
    *(reduction(op, axes, keep)
      for op in REDUCTIONS for axes, keep in (((1,), True), ((0, -1), False), (None, False))),
    *(Case(op, (array,), alone, {"noop_with_empty_axes": 1}, label="noop")
      for op, (array, alone) in ALONE.items()),
    Case("ReduceMax", (np.float64(3.0),), lambda x: x, label="scalar"),
    Case("ReduceProd", (ZEROS, np.array([1])), lambda x, axes: x.prod(1, keepdim=True),
         label="zeros"),
    running(), running(exclusive=1), running(reverse=1), running(exclusive=1, reverse=1),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)
