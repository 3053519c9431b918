"""What can be placed on a device: something with a name that the compiler or torch can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import onnx
import torch

from .errors import PyBudaError

Part: TypeAlias = "torch.nn.Module | onnx.ModelProto"
"""What a device runs of a module: torch, or an ONNX model."""


class Version:
    """The tensors of a module, and how often each was written to, at one time.

    It keeps them, so that none that is made later can be taken for one of them.
    """

    def __init__(self, tensors: Iterable[torch.Tensor | None]) -> None:
        self._tensors = [tensor for tensor in tensors if tensor is not None]
        self._marks = [mark(tensor) for tensor in self._tensors]

    def is_that_of(self, other: Version) -> bool:
        """Return whether nothing has changed between the two."""
        return (
            self._marks == other._marks
            and None not in self._marks
            and all(a is b for a, b in zip(self._tensors, other._tensors, strict=True))
        )


def mark(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return what a write to `tensor` changes, None where torch does not count writes."""
    return None if tensor.is_inference() else (tensor._version, tensor.data_ptr())


class Placeable(ABC):
    """The base of all modules: a name, and the part that a device runs."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise PyBudaError(f"the name of a module came as a {type(name).__name__}")
        self.name = name

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    @abstractmethod
    def part(self) -> Part:
        """Return what a device runs."""

    @abstractmethod
    def version(self) -> Version:
        """Return what is another one after the values of parameters have changed."""

    @abstractmethod
    def parameters_by_name(self) -> Mapping[str, torch.nn.Parameter]:
        """Return the parameters of what `part` returns, by the names that programs know."""

    @abstractmethod
    def on_host(self) -> torch.nn.Module:
        """Return what a CPU runs. Raises `PyBudaError` for a module that it cannot."""


def listed_modules(modules: object) -> list[Placeable]:
    """Return one module, or those of a tuple or list. Raises `PyBudaError` for anything else."""
    found = [*modules] if isinstance(modules, tuple | list) else [modules]
    for item in found:
        if not isinstance(item, Placeable):
            raise PyBudaError(
                f"a {type(item).__name__} came where a module was expected; wrap it, for instance "
                "in pybuda.PyTorchModule"
            )
    return [item for item in found if isinstance(item, Placeable)]
