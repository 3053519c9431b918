"""Tensors as PyBuda programs see them: values on the host, or parts of a recorded graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch

from pef.arguments import shown
from sambac.numerics import FORMATS, rounded
from sambahost import host_trainer

from ._C import DataFormat
from .errors import PyBudaError
from .formats import format_of, held_as


class TensorShape(tuple[int, ...]):
    """The shape of a tensor, as a tuple."""

    __slots__ = ()

    def get_pytorch_shape(self) -> tuple[int, ...]:
        """Return the shape as torch has it."""
        return tuple(self)


class Arithmetic(ABC):
    """What `+`, `-` and `*` apply to: a tensor or a parameter, beside another one or a number."""

    @abstractmethod
    def value(self) -> torch.Tensor:
        """Return the torch tensor."""

    def __add__(self, other: object) -> Tensor:
        return Tensor(torch.add(*_operands(self, other)))

    def __sub__(self, other: object) -> Tensor:
        return Tensor(torch.sub(*_operands(self, other)))

    def __mul__(self, other: object) -> Tensor:
        return Tensor(torch.mul(*_operands(self, other)))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Tensor:
        first, second = _operands(self, other)
        return Tensor(torch.sub(second, first))


class Tensor(Arithmetic):
    """A torch tensor in the API of PyBuda; operators of `pybuda.op` take and return these.

    `constant` changes nothing: a module says which of its tensors are constants.
    """

    def __init__(
        self, value: torch.Tensor, form: DataFormat | None = None, constant: bool = False
    ) -> None:
        self._value = value
        self._form = form

    @classmethod
    def create_from_torch(
        cls, torch_tensor: torch.Tensor, dev_data_format: DataFormat | None = None
    ) -> Tensor:
        """Return the tensor that holds `torch_tensor`, which it shares.

        The device gets it in `dev_data_format`, or in the format of its type. Raises `PyBudaError`
        for a type that the device has no format for.
        """
        format_of(torch_tensor.dtype)
        if dev_data_format is not None and torch_tensor.is_floating_point():
            held_as(dev_data_format, "dev_data_format")
        return cls(torch_tensor, dev_data_format)

    def on_device(self) -> torch.Tensor:
        """Return the values as a device gets them, rounded to its format."""
        if self._form is None or not self._value.is_floating_point():
            return self._value
        form = FORMATS[held_as(self._form, "dev_data_format")]
        found = torch.from_numpy(rounded(self._value.detach().float().numpy(), form))
        return found.to(self._value.dtype)

    def has_value(self) -> bool:
        """Return whether there are values: always."""
        return True

    def value(self) -> torch.Tensor:
        """Return the torch tensor."""
        return self._value

    to_pytorch = value

    def to_framework(self, framework: str) -> torch.Tensor | np.ndarray:
        """Return the tensor of `framework`: pytorch, onnx or numpy; TensorFlow is not loaded here.

        Raises `PyBudaError` for another, and for a type that it does not have.
        """
        if framework == "pytorch":
            return self._value
        if framework in ("onnx", "numpy"):
            if self._value.dtype is torch.bfloat16:
                raise PyBudaError("numpy has no bfloat16; take to_pytorch()")
            return self._value.detach().numpy()
        raise PyBudaError(f"'{framework}' is no framework here: pytorch, onnx or numpy")

    def detach(self) -> Tensor:
        """Return a tensor with the same values that no gradient flows through."""
        return Tensor(self._value.detach())

    @property
    def shape(self) -> TensorShape:
        """The sizes of all dimensions."""
        return TensorShape(self._value.shape)

    def ndim(self) -> int:
        """Return the number of dimensions."""
        return self._value.ndim

    @property
    def data_format(self) -> DataFormat:
        """The format of the values on the device."""
        return self._form or format_of(self._value.dtype)

    @property
    def pt_data_format(self) -> torch.dtype:
        """The type of the values on the host."""
        return self._value.dtype

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor."""
        return self._value.requires_grad

    def __repr__(self) -> str:
        return f"pybuda.Tensor {[*self.shape]}: {self._value}"


SomeTensor: TypeAlias = torch.Tensor | Tensor | np.ndarray
TensorFromPytorch = Tensor
"""What the original calls tensors with values."""


def tensors(found: Mapping[str, torch.Tensor]) -> dict[str, Tensor]:
    """Return the tensors by name as programs get them."""
    return {name: Tensor(value) for name, value in found.items()}


def typed(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both in the type of the first, or of the second where the first is boolean."""
    wanted = b.dtype if a.dtype is torch.bool else a.dtype
    return a.to(wanted), b.to(wanted)


def to_torch(value: object) -> torch.Tensor:
    """Return `value` as a torch tensor, whichever kind it is. Raises `PyBudaError` for others."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Tensor):
        return value.value()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    raise PyBudaError(f"{shown(value)} came; a torch, numpy or pybuda tensor was expected")


def require_shape(name: object, shape: Sequence[int], value: torch.Tensor) -> None:
    """Raise `PyBudaError` unless `value` has the shape of the parameter called `name`."""
    host_trainer.require_shape(name, shape, value, PyBudaError)


def _operands(own: Arithmetic, other: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Return operands of one type. Raises `PyBudaError` for what is no operand."""
    value = own.value()
    if isinstance(other, int | float):
        beside = torch.tensor(other, dtype=value.dtype if isinstance(other, int) else None)
    elif isinstance(other, Arithmetic):
        beside = other.value()
    else:
        raise PyBudaError(
            f"a {type(other).__name__} came as an operand; a pybuda Tensor, a Parameter or a "
            "number was expected"
        )
    return typed(value, beside)
