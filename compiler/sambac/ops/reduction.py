"""Operators that fold many elements into one, or into a running total."""

from __future__ import annotations

from .family import POLYNOMIAL, Family, each, per_input
from .gradients import loss as loss_gradients
from .gradients import reduction as reduction_gradients

_SIMPLE = """
    ArgMax ArgMin CumProd CumSum ReduceL1 ReduceLogSum ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum
"""

FAMILY = Family(
    "reduction",
    {
        **each(_SIMPLE, per_input(1)),
        **each("ReduceL2 ReduceSumSquare", per_input(2)),
        **each("ReduceLogSumExp", per_input(POLYNOMIAL + 1)),
        **each("Hardmax", per_input(2)),
        **each("LogSoftmax Softmax", per_input(POLYNOMIAL + 4)),
        **each("NegativeLogLikelihoodLoss", per_input(2, 1)),
        **each("SoftmaxCrossEntropyLoss", per_input(POLYNOMIAL + 6)),
        **each("DynamicTimeWarping", per_input(3), "com.microsoft"),
    },
    gradients={**reduction_gradients.GRADIENTS, **loss_gradients.GRADIENTS},
    constant=frozenset({"ArgMax", "ArgMin", "Hardmax"}),
)
