"""Gradients of softmax and of the losses on class labels, against torch and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gradient_check import Case, check_against_torch, check_finite_differences

Array = np.ndarray[Any, np.dtype[Any]]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4))
CLASSES = 5
WEIGHTS = RNG.uniform(0.5, 2, CLASSES)


def scores(*more: int) -> Array:
    return RNG.normal(size=(4, CLASSES, *more)) * 2


def labels(*more: int, ignored: int | None = None) -> Array:
    found = RNG.integers(0, CLASSES, (4, *more))
    if ignored is not None:
        found.reshape(-1)[[1, -1]] = ignored
    return found


def loss(
    op: str,
    label: str,
    *more: int,
    weights: Array | None = None,
    outputs: int = 1,
    **attributes: Any,
) -> Case:
    ignored = attributes.get("ignore_index")
    function = F.cross_entropy if op == "SoftmaxCrossEntropyLoss" else F.nll_loss

    def expected(
        x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        value = function(
            x,
            target.long(),
            weight,
            ignore_index=-1000 if ignored is None else ignored,
            reduction=attributes.get("reduction", "mean"),
        )
        return [value, F.log_softmax(x, 1)][:outputs]

    inputs: tuple[Array, ...] = (scores(*more), labels(*more, ignored=ignored))
    if weights is not None:
        inputs = (*inputs, weights)
    return Case(op, inputs, expected, attributes, outputs=outputs, label=label, constants=(2,))


LOSSES = [
    case
    for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    for case in (
        loss(op, "mean"),
        loss(op, "sum", reduction="sum"),
        loss(op, "none", reduction="none"),
        loss(op, "pixels", 2, 3),
        loss(op, "pixels-none", 2, 3, reduction="none"),
        loss(op, "weights", weights=WEIGHTS),
        loss(op, "weights-sum", weights=WEIGHTS, reduction="sum"),
        loss(op, "weights-none", 3, weights=WEIGHTS, reduction="none"),
        loss(op, "ignored", ignore_index=-100),
        loss(op, "ignored-class", ignore_index=2),
        loss(op, "ignored-outside", 3, ignore_index=255, reduction="none"),
        loss(op, "ignored-weights", 2, 2, weights=WEIGHTS, ignore_index=-1),
    )
]
CASES = [
    *(Case(op, (X,), lambda x, f=f, axis=axis: f(x, axis), {"axis": axis}, label=f"axis {axis}")
      for op, f in (("Softmax", F.softmax), ("LogSoftmax", F.log_softmax)) for axis in (-1, 1)),
    Case("Softmax", (X,), lambda x: F.softmax(x, -1)),
    Case("LogSoftmax", (X,), lambda x: F.log_softmax(x, -1)),
    *LOSSES,
    loss("SoftmaxCrossEntropyLoss", "logarithms", outputs=2),
    loss("SoftmaxCrossEntropyLoss", "logarithms-ignored", 3, outputs=2, ignore_index=-100,
         weights=WEIGHTS),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)
