"""Gradients of arithmetic, elementary functions and activations, against torch and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from gradient_check import Case, check_against_torch, check_finite_differences

Array = np.ndarray[Any, np.dtype[Any]]


def between(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    """Numbers of a range, none within 0.02 of a multiple of 1/2, where kinks are."""
    numbers = np.random.default_rng(seed).uniform(low, high, shape or (3, 5))
    offset = numbers * 2 - np.round(numbers * 2)
    return np.where(np.abs(offset) < 0.04, numbers + 0.03, numbers)


X = between(-4, 4)
ROW = between(-4, 4, 5, seed=1)
COLUMN = between(0.6, 3, 3, 1, seed=2)
SHORT = between(-0.9, 0.9)
ABOVE = between(0.2, 4)
MASK = np.random.default_rng(3).random((3, 5)) < 0.5


def mean(*inputs: torch.Tensor) -> torch.Tensor:
    return sum(inputs) / len(inputs)  # type: ignore[return-value]


def power(p: float) -> Case:
    return Case("Pow", (ABOVE, np.float64(p)), torch.pow, constants=(1,), label=f"constant {p}")


ARITHMETIC = [
    Case("Abs", (X,), torch.abs),
    Case("Acos", (SHORT,), torch.acos),
    Case("Acosh", (between(1.1, 4),), torch.acosh),
    Case("Add", (X, ROW), torch.add),
    Case("Add", (ROW, X), torch.add, label="swapped"),
    Case("Asin", (SHORT,), torch.asin),
    Case("Asinh", (X,), torch.asinh),
    Case("Atan", (X,), torch.atan),
    Case("Atanh", (SHORT,), torch.atanh),
    Case("Cast", (X,), lambda x: x.to(torch.float32).double(), {"to": onnx.TensorProto.FLOAT},
         without_finite_differences="casting to float32 rounds", label="float32"),
    Case("CastLike", (X, ROW), lambda x, like: x),
    Case("Clip", (X, np.float64(-1.2), np.float64(1.7)), lambda x, low, high: x.clamp(low, high)),
    Case("Clip", (X, np.float64(-1.2)), lambda x, low: x.clamp(min=low), label="low"),
    Case("Clip", (X, None, np.float64(1.7)), lambda x, low, high: x.clamp(max=high), label="high"),
    Case(
        "Clip",
        (X, np.float64(0.7), np.float64(-0.3)),
        lambda x, low, high: x.clamp(low, high),
        label="crossed",
    ),
    Case("Cos", (X,), torch.cos),
    Case("Cosh", (X,), torch.cosh),
    Case("Div", (X, COLUMN), torch.div),
    Case("Div", (ROW, ABOVE), torch.div, label="swapped"),
    Case("Erf", (X,), torch.erf),
    Case("Exp", (X,), torch.exp),
    Case("Log", (ABOVE,), torch.log),
    Case("Max", (X, ROW), torch.maximum),
    Case("Max", (X,), lambda x: x, label="one"),
    Case("Max", (X, ROW, COLUMN), lambda a, b, c: torch.maximum(torch.maximum(a, b), c),
         label="three"),
    Case("Mean", (X, ROW, COLUMN), mean),
    Case("Min", (X, ROW), torch.minimum),
    Case("Min", (COLUMN, X, ROW), lambda a, b, c: torch.minimum(torch.minimum(a, b), c),
         label="three"),
    Case("Mod", (X, COLUMN), torch.fmod, {"fmod": 1}),
    Case("Mul", (X, ROW), torch.mul),
    Case("Mul", (X, np.float64(0.7)), torch.mul, label="scalar"),
    Case("Neg", (X,), torch.neg),
    Case("Pow", (ABOVE, ROW), torch.pow),
    Case("Pow", (X, np.array([0, 1, 2, 3, -2])), torch.pow,
         label="integers"),
    *(power(p) for p in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 2.3)),
    Case("Pow", (X, np.array(2)), torch.pow, label="square"),
    Case("Reciprocal", (ABOVE,), torch.reciprocal),
    Case("Sin", (X,), torch.sin),
    Case("Sinh", (X,), torch.sinh),
    Case("Sqrt", (ABOVE,), torch.sqrt),
    Case("Sub", (X, ROW), torch.sub),
    Case("Sum", (X, ROW, COLUMN), lambda a, b, c: a + b + c),
    Case("Sum", (X,), lambda x: x, label="one"),
    Case("Tan", (SHORT,), torch.tan),
    Case("Where", (MASK, X, ROW), torch.where),
]  # fmt: skip

ACTIVATIONS = [
    Case("Celu", (X,), lambda x: F.celu(x, 1.5), {"alpha": 1.5}),
    Case("Elu", (X,), F.elu),
    Case("Elu", (X,), lambda x: F.elu(x, 0.3), {"alpha": 0.3}, label="alpha"),
    Case("Gelu", (X,), F.gelu,
         without_finite_differences="onnx's body of it has an error function in float32"),
    Case("Gelu", (X,), lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"},
         label="tanh"),
    Case("HardSigmoid", (X,), lambda x: (x * 0.3 + 0.4).clamp(0, 1), {"alpha": 0.3, "beta": 0.4}),
    Case("HardSwish", (X,), F.hardswish),
    Case("LeakyRelu", (X,), F.leaky_relu),
    Case("LeakyRelu", (X,), lambda x: F.leaky_relu(x, 1.4), {"alpha": 1.4}, label="steep"),
    Case("LeakyRelu", (X,), lambda x: F.leaky_relu(x, 3e7), {"alpha": 3e7}, label="very steep"),
    Case("Mish", (X,), F.mish),
    Case("PRelu", (X, ROW), lambda x, slope: torch.where(x > 0, x, x * slope)),
    Case("Relu", (X,), F.relu),
    Case("Selu", (X,), F.selu, tolerance=1e-4),
    Case("Selu", (X,), lambda x: 2 * F.elu(x, 0.3), {"alpha": 0.3, "gamma": 2.0}, label="alpha"),
    Case("Shrink", (X,), lambda x: torch.where(x.abs() > 0.7, x - 0.2 * x.sign(), 0 * x),
         {"lambd": 0.7, "bias": 0.2}),
    Case("Sigmoid", (X,), torch.sigmoid),
    Case("Softplus", (X,), F.softplus),
    Case("Softsign", (X,), F.softsign),
    Case("Tanh", (X,), torch.tanh),
    Case("ThresholdedRelu", (X,), lambda x: F.threshold(x, 0.7, 0), {"alpha": 0.7}),
]  # fmt: skip


def fused(op: str, inputs: tuple[Array, ...], function: Any, **attributes: Any) -> Case:
    reason = "onnx has no reference implementation of com.microsoft operators"
    return Case(op, inputs, function, attributes, domain="com.microsoft",
                without_finite_differences=reason)  # fmt: skip


FUSED = [
    fused("BiasGelu", (X, ROW), lambda x, bias: F.gelu(x + bias)),
    fused("FastGelu", (X, ROW), lambda x, bias: F.gelu(x + bias, approximate="tanh")),
    fused("FastGelu", (X,), lambda x: F.gelu(x, approximate="tanh")),
    fused("Gelu", (X,), F.gelu),
    fused("QuickGelu", (X,), lambda x: x * torch.sigmoid(1.3 * x), alpha=1.3),
    fused("GatedAdd", (X, between(-2, 2, seed=5), COLUMN), lambda a, b, gate: a + b * gate),
]

CASES = [*ARITHMETIC, *ACTIVATIONS, *FUSED]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)
