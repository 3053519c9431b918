"""What can be placed on a device: something with a name that the compiler or torch can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeAlias

import onnx
import torch

from .errors import PyBudaError

Part: TypeAlias = "torch.nn.Module | onnx.ModelProto"
"""What a device runs of a module: torch, or an ONNX model."""

Version: TypeAlias = tuple[tuple[int, int], ...]
"""Which tensors a module has, and how often each was written to."""


def version_of(tensors: Iterable[torch.Tensor | None]) -> Version:
    """Return the version of a module that has these tensors."""
    return tuple((id(tensor), tensor._version) for tensor in tensors if tensor is not None)


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
