"""Parameters of PyBuda modules, and what they are while a module is recorded for the device."""

from __future__ import annotations

import torch

from ._C import DataFormat
from .errors import PyBudaError
from .formats import held_as
from .recording import recording
from .tensor import Arithmetic, SomeTensor, TensorShape, require_shape, to_torch


class Parameter(Arithmetic):
    """A weight of a module: its shape, and values once they are given.

    `Parameter(8, 4)` says a shape alone, `Parameter(tensor)` the values too. `dev_data_format` is
    what the device holds them in, where it is not their own type.
    """

    def __init__(
        self,
        *args: int | SomeTensor,
        requires_grad: bool = True,
        name: str | None = None,
        dev_data_format: DataFormat | None = None,
    ) -> None:
        if not args:
            raise PyBudaError("Parameter() has no shape; give its sizes, or a tensor")
        self.requires_grad = requires_grad
        self._name = name
        self.set_data_format(dev_data_format)
        self._value: torch.Tensor | None = None
        self._torch: torch.nn.Parameter | None = None
        if all(isinstance(size, int) for size in args):
            self._shape = TensorShape(int(size) for size in args if isinstance(size, int))
            return
        if len(args) > 1 or isinstance(args[0], int):
            raise PyBudaError("Parameter takes its sizes, or one tensor")
        value = to_torch(args[0])
        self._shape = TensorShape(value.shape)
        self.set_value(value)

    @classmethod
    def create_from_torch(cls, torch_tensor: torch.Tensor) -> Parameter:
        """Return a parameter with the values of a torch tensor, which trains if that does."""
        return cls(torch_tensor, requires_grad=torch_tensor.requires_grad)

    @property
    def shape(self) -> TensorShape:
        """The sizes of all dimensions."""
        return self._shape

    def get_name(self) -> str | None:
        """Return the name, None before a module has the parameter."""
        return self._name

    def set_data_format(self, form: DataFormat | None) -> None:
        """Let the device hold the values in a format from now on, or as they are for None."""
        if form is not None:
            held_as(form, "dev_data_format")
        self.dev_data_format = form

    def has_value(self) -> bool:
        """Return whether values were given."""
        return self._value is not None

    def set_value(self, value: SomeTensor) -> None:
        """Take the values of a tensor of this shape. Raises `PyBudaError` for another."""
        self.require_fits(value)
        self._value = to_torch(value).detach().clone()
        self._torch = None

    def require_fits(self, value: object) -> None:
        """Raise `PyBudaError` unless `value` is a tensor of this shape."""
        require_shape(self._name, self._shape, to_torch(value))

    def value(self) -> torch.Tensor:
        """Return the values, or what stands for them in the graph that is recorded.

        Raises `PyBudaError` if there are none.
        """
        if (recorded := recording().parameters.get(id(self))) is not None:
            return recorded
        if self._value is None:
            raise PyBudaError(f"parameter '{self._name}' has no values; give some by set_value")
        return self._value

    def in_torch(self) -> torch.nn.Parameter:
        """Return a parameter of torch with the values: the same one until others are set.

        So modules that share this one share that. Raises `PyBudaError` if there are no values.
        """
        value = self.value() if self._torch is None else self._torch
        trains = self.requires_grad and value.is_floating_point()
        if self._torch is None:
            self._torch = torch.nn.Parameter(value, requires_grad=trains)
        self._torch.requires_grad = trains
        return self._torch

    def __repr__(self) -> str:
        return f"pybuda.Parameter '{self._name}' {[*self._shape]}"
