"""Softmax and normalisation; modules of one operator, whose parameters begin as PyTorch's do."""

from __future__ import annotations

import functools
import inspect
import math

import torch
from torch import Tensor
from torch.nn import functional

from pef.arguments import bound
from pybuda.errors import PyBudaError
from pybuda.errors import as_own as _as_own
from pybuda.module import PyBudaModule
from pybuda.parameter import Parameter
from pybuda.tensor import Tensor as Operand
from sambahost.windows import Padding, Sizes, sizes

from .apply import Operator, operator
from .convolutions import AvgPool2d, Conv2d, Conv2dTranspose, MaxPool1d, MaxPool2d
from .matmul import Matmul


@operator
def Softmax(operandA: Tensor, *, dim: int, stable: bool = True) -> Tensor:
    """Return e^x over its sum along `dim`. It is the stable form whether or not it is asked for."""
    return functional.softmax(operandA, dim)


@operator
def LogSoftmax(operandA: Tensor, *, dim: int, stable: bool = True) -> Tensor:
    """Return the logarithm of `Softmax`."""
    return functional.log_softmax(operandA, dim)


@operator
def Layernorm(
    operandA: Tensor, weights: Tensor, bias: Tensor, dim: int = -1, epsilon: float = 1e-05
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * weights + bias, over dimension `dim`."""
    x, size = operandA, operandA.shape[-1:]
    if dim in (-1, x.ndim - 1) and weights.numel() == bias.numel() == x.shape[-1]:
        return functional.layer_norm(x, size, weights.reshape(-1), bias.reshape(-1), epsilon)
    mean = torch.mean(x, dim, keepdim=True)
    variance = torch.mean((x - mean) ** 2, dim, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon) * weights + bias


@operator
def Batchnorm(
    operandA: Tensor,
    weights: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    epsilon: float = 1e-05,
) -> Tensor:
    """Return (x - mean) / (sqrt(variance + epsilon) + 1e-10) * weights + bias for each channel.

    x is (N, C, H, W); the others have one number for each channel. 1e-10 is `Reciprocal`'s.
    """
    statistics = (weights, bias, running_mean, running_var)
    w, b, mean, variance = (item.reshape(-1, 1, 1) for item in statistics)
    return (operandA - mean) * (1 / (torch.sqrt(variance + epsilon) + 1e-10)) * w + b


class OneOperator(PyBudaModule):
    """The base of modules that apply one operator, called as they are, to their input."""

    weights: Parameter | None = None
    bias: Parameter | None = None

    def __init__(self, name: str, applied: Operator, *settings: object) -> None:
        """Apply an operator to inputs, and to weights and a bias if there are some."""
        super().__init__(name)
        self._operator = applied
        self._settings = settings

    def forward(self, activations: Operand) -> Operand:
        """Return what the operator gives."""
        own = () if self.weights is None else (self.weights, self.bias)
        return self._operator(self.name, activations, *own, *self._settings)


class Linear(OneOperator):
    """Activations (..., in) times weights (in, out), and a bias."""

    def __init__(self, name: str, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(name, Matmul)
        weights = _begun(out_features, in_features)
        self.weights = Parameter(weights.T.contiguous())
        self.bias = _bias(weights) if bias else None


class Conv2dModule(OneOperator):
    """A `Conv2d` with weights of its own."""

    def __init__(
        self,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Padding = "same",
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(name, Conv2d, stride, padding, dilation, groups)
        _require_groups(name, in_channels, groups)
        weights = _begun(out_channels, in_channels // groups, *_window(kernel_size))
        self.weights, self.bias = Parameter(weights), _bias(weights) if bias else None


class ConvTranspose2dModule(OneOperator):
    """A `Conv2dTranspose` with weights of its own."""

    def __init__(
        self,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Padding = "same",
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
    ) -> None:
        super().__init__(name, Conv2dTranspose, stride, padding, dilation, groups)
        _require_groups(name, out_channels, groups)
        weights = _begun(in_channels, out_channels // groups, *_window(kernel_size))
        self.weights, self.bias = Parameter(weights), _bias(weights, out_channels) if bias else None


def _pool(kind: str, applied: Operator) -> type[OneOperator]:
    """Return the module `kind` of a pool: it takes a name, and what `applied` takes behind x."""

    def begin(self: OneOperator, name: str, *settings: object, **named: object) -> None:
        bound(kind, inspect.signature(applied), (name, None, *settings), named)
        OneOperator.__init__(self, name, functools.partial(applied, **named), *settings)

    members = {"__init__": begin, "__doc__": applied.__doc__, "__module__": __name__}
    return type(kind, (OneOperator,), members)


MaxPool1dModule = _pool("MaxPool1dModule", MaxPool1d)
MaxPool2dModule = _pool("MaxPool2dModule", MaxPool2d)
AvgPool2dModule = _pool("AvgPool2dModule", AvgPool2d)


class SparseMatmulModule(PyBudaModule):
    """A `SparseMatmul` whose matrix is a constant."""

    def __init__(self, name: str, sparseA: Operand) -> None:
        super().__init__(name)
        self.sparseA = Parameter(sparseA.value().to_dense(), requires_grad=False)

    def forward(self, denseB: Operand) -> Operand:
        """Return the product."""
        return Matmul(self.name, self.sparseA, denseB)


def _begun(*shape: int) -> torch.Tensor:
    """Return weights as PyTorch begins with them."""
    return torch.nn.init.kaiming_uniform_(torch.empty(shape), a=math.sqrt(5))


def _bias(weights: torch.Tensor, size: int | None = None) -> Parameter:
    """Return a bias of `size` numbers, or one for each of `weights`' outputs, as PyTorch begins."""
    fan_in = weights[0].numel()
    values = torch.empty(weights.shape[0] if size is None else size)
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Parameter(torch.nn.init.uniform_(values, -bound, bound))


def _window(kernel_size: Sizes) -> tuple[int, ...]:
    """Return height and width. Raises `PyBudaError` for other numbers of sizes."""
    with _as_own():
        return sizes(kernel_size, 2)


def _require_groups(name: str, channels: int, groups: int) -> None:
    """Raise `PyBudaError` for channels that make no equal groups."""
    if groups < 1 or channels % groups:
        raise PyBudaError(f"'{name}': {channels} channels make no {groups} equal groups")
