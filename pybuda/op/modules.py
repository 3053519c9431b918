"""Modules of one operator, with parameters that begin as those of PyTorch's layers do."""

from __future__ import annotations

import math

import torch

from pybuda.errors import PyBudaError
from pybuda.module import PyBudaModule
from pybuda.parameter import Parameter
from pybuda.tensor import Tensor

from .images import AvgPool2d, Conv2d, Conv2dTranspose, MaxPool2d, Padding, Pair, pair
from .matmul import Matmul
from .volumes import MaxPool1d


class Linear(PyBudaModule):
    """Activations (..., in) times weights (in, out), and a bias."""

    def __init__(self, name: str, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(name)
        weights = torch.empty(out_features, in_features)
        torch.nn.init.kaiming_uniform_(weights, a=math.sqrt(5))
        self.weights = Parameter(weights.T.contiguous())
        self.bias = _bias(weights) if bias else None

    def forward(self, activations: Tensor) -> Tensor:
        """Return the product."""
        return Matmul(self.name, activations, self.weights, bias=self.bias)


class Conv2dModule(PyBudaModule):
    """A `Conv2d` with weights of its own."""

    def __init__(
        self,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = "same",
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(name)
        _require_groups(name, in_channels, groups)
        weights = torch.empty(out_channels, in_channels // groups, *pair(kernel_size))
        torch.nn.init.kaiming_uniform_(weights, a=math.sqrt(5))
        self.weights, self.bias = Parameter(weights), _bias(weights) if bias else None
        self._settings = (stride, padding, dilation, groups)

    def forward(self, activations: Tensor) -> Tensor:
        """Return the convolution."""
        stride, padding, dilation, groups = self._settings
        return Conv2d(
            self.name, activations, self.weights, self.bias, stride, padding, dilation, groups
        )


class ConvTranspose2dModule(PyBudaModule):
    """A `Conv2dTranspose` with weights of its own."""

    def __init__(
        self,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = "same",
        groups: int = 1,
        bias: bool = True,
        dilation: Pair = 1,
    ) -> None:
        super().__init__(name)
        _require_groups(name, out_channels, groups)
        weights = torch.empty(in_channels, out_channels // groups, *pair(kernel_size))
        torch.nn.init.kaiming_uniform_(weights, a=math.sqrt(5))
        self.weights = Parameter(weights)
        self.bias = _bias(weights, out_channels) if bias else None
        self._settings = (stride, padding, dilation, groups)

    def forward(self, activations: Tensor) -> Tensor:
        """Return the transposed convolution."""
        stride, padding, dilation, groups = self._settings
        return Conv2dTranspose(
            self.name, activations, self.weights, self.bias, stride, padding, dilation, groups
        )


class MaxPool1dModule(PyBudaModule):
    """A `MaxPool1d`."""

    def __init__(
        self, name: str, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1
    ) -> None:
        super().__init__(name)
        self._settings = (kernel_size, stride, padding, dilation)

    def forward(self, activations: Tensor) -> Tensor:
        """Return the largest elements."""
        return MaxPool1d(self.name, activations, *self._settings)


class MaxPool2dModule(PyBudaModule):
    """A `MaxPool2d`."""

    def __init__(
        self,
        name: str,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = "same",
        dilation: Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(name)
        self._settings = (kernel_size, stride, padding, dilation, ceil_mode)

    def forward(self, activations: Tensor) -> Tensor:
        """Return the largest elements."""
        return MaxPool2d(self.name, activations, *self._settings)


class AvgPool2dModule(PyBudaModule):
    """An `AvgPool2d`."""

    def __init__(
        self,
        name: str,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Padding = "same",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(name)
        self._windows = (kernel_size, stride, padding)
        self._means = (ceil_mode, count_include_pad, divisor_override)

    def forward(self, activations: Tensor) -> Tensor:
        """Return the means."""
        return AvgPool2d(self.name, activations, *self._windows, *self._means)


class SparseMatmulModule(PyBudaModule):
    """A `SparseMatmul` whose matrix is a constant."""

    def __init__(self, name: str, sparseA: Tensor) -> None:
        super().__init__(name)
        dense = sparseA.value()
        self.sparseA = Parameter(
            dense.to_dense() if dense.is_sparse else dense, requires_grad=False
        )

    def forward(self, denseB: Tensor) -> Tensor:
        """Return the product."""
        return Matmul(self.name, self.sparseA, denseB)


def _bias(weights: torch.Tensor, size: int | None = None) -> Parameter:
    """Return a bias of `size` numbers, or one for each of `weights`' outputs, as PyTorch begins."""
    fan_in = weights[0].numel()
    values = torch.empty(weights.shape[0] if size is None else size)
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Parameter(torch.nn.init.uniform_(values, -bound, bound))


def _require_groups(name: str, channels: int, groups: int) -> None:
    """Raise `PyBudaError` for channels that make no equal groups."""
    if groups < 1 or channels % groups:
        raise PyBudaError(f"'{name}': {channels} channels make no {groups} equal groups")
