"""What can be placed on a device: something with a name that the compiler or torch can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import torch

from sambahost.compiled_step import AnyPart
from sambahost.models import Version

from .errors import PyBudaError


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
    def part(self) -> AnyPart:
        """Return what a device runs: torch, or an ONNX model."""

    def version(self) -> Version:
        """Return what is another one after values, modules in it or attributes have changed."""
        return Version(self._tensors(), self._structure(), self.owners())

    def _tensors(self) -> Iterable[torch.Tensor | None]:
        """Return the tensors whose values are compiled in."""
        return ()

    def _structure(self, objects: bool = True) -> object:
        """Return what is another one after modules in it, or values of attributes, have changed.

        These are numbers and texts alone, or all `objects`.
        """
        return ()

    def owners(self) -> Iterable[object]:
        """Return the objects whose attributes hold what `_structure` is of, to glance at."""
        return (self,)

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
