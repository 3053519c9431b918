"""Losses of PyBuda: modules that are called with predictions and targets.

Both work on the last two dimensions, as the original's do, so that each sample has one loss if it
has no more dimensions than these that are not 1.
"""

from __future__ import annotations

from pybuda.errors import PyBudaError
from pybuda.module import PyBudaModule
from pybuda.tensor import Tensor

from .eltwise_binary import Multiply, Subtract
from .eltwise_unary import Abs, Constant, Exp, Log
from .reduce import ReduceAvg, ReduceSum

_REDUCTIONS = {"avg": ReduceAvg, "sum": ReduceSum, "none": None}


class L1Loss(PyBudaModule):
    """The absolute difference, its average, its sum, or for `none` all of it."""

    def __init__(self, name: str, reduction: str = "avg") -> None:
        super().__init__(name)
        if reduction not in _REDUCTIONS:
            raise PyBudaError(f"reduction is {reduction!r}; it is one of {', '.join(_REDUCTIONS)}")
        self.reduction = reduction

    def forward(self, prediction: Tensor, labels: Tensor) -> Tensor:
        """Return |prediction - labels|, reduced."""
        difference = Abs("abs", Subtract("sub", prediction, labels))
        reduce = _REDUCTIONS[self.reduction]
        if reduce is None:
            return difference
        return reduce("c", reduce("r", difference, -2), -1)


class CrossEntropyLoss(PyBudaModule):
    """The cross entropy of predictions against one-hot labels, averaged over dimension -2."""

    def __init__(self, name: str) -> None:  # its own, so that errors name this class
        super().__init__(name)

    def forward(self, predictions: Tensor, labels: Tensor) -> Tensor:
        """Return the average of -sum(labels * (predictions - log(sum(e^predictions)))).

        As in the original nothing is subtracted before e^x, which overflows from 88 on.
        """
        total = Log("log", ReduceSum("sum", Exp("exp", predictions), -1))
        surprise = Multiply(
            "minus", Subtract("sub", predictions, total), Constant("-1", constant=-1.0)
        )
        return ReduceAvg("avg", ReduceSum("words", Multiply("own", surprise, labels), -1), -2)
