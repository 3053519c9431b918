"""PyBuda modules as torch modules, so that the compiler records them as it does any other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from .errors import PyBudaError
from .parameter import Parameter, recorded_as
from .tensor import Tensor


class Traceable(Protocol):
    """A module whose `forward` applies operators to tensors."""

    def get_parameters(self) -> list[Parameter]:
        """Return all parameters."""

    def __call__(self, *inputs: Tensor) -> object:
        """Return the outputs: a tensor, or several."""


class RecordedModule(torch.nn.Module):
    """A PyBuda module whose parameters are those of a torch module, by their numbers."""

    def __init__(self, module: Traceable) -> None:
        super().__init__()
        self._traced = module
        self._owners = module.get_parameters()
        for index, parameter in enumerate(self._owners):
            value = parameter.value()
            trains = parameter.requires_grad and value.is_floating_point()
            self.register_parameter(f"p{index}", torch.nn.Parameter(value, requires_grad=trains))

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs as torch tensors."""
        recorded = {id(p): self.get_parameter(f"p{i}") for i, p in enumerate(self._owners)}
        with recorded_as(recorded):
            found = self._traced(
                *map(Tensor, inputs), **{name: Tensor(value) for name, value in named.items()}
            )
        return tuple(item.value() for item in _outputs(found))


class Chain(torch.nn.Module):
    """Modules that run one after the other; the first may take its inputs by name."""

    def __init__(self, parts: Iterable[torch.nn.Module], names: Sequence[str] = ()) -> None:
        super().__init__()
        self._names = tuple(names)
        self._count = 0
        for part in parts:  # a module may be there twice
            self.add_module(str(self._count), part)
            self._count += 1

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module, without structure."""
        parts = [self.get_submodule(str(index)) for index in range(self._count)]
        if self._names:
            outputs = leaves(parts[0](**dict(zip(self._names, tensors, strict=True))))
        else:
            outputs = leaves(parts[0](*tensors))
        for part in parts[1:]:
            outputs = leaves(part(*outputs))
        return outputs


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Let `module` evaluate for a while: dropout is off, and statistics stay what they are."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def leaves(found: object) -> tuple[torch.Tensor, ...]:
    """Return the tensors of what a torch module returned, in order, without what is None.

    Raises `PyBudaError` if there are none, and for what is neither a tensor nor holds some.
    """
    tensors = tuple(_leaves(found))
    if not tensors:
        raise PyBudaError("a module returned no tensor")
    return tensors


def _leaves(found: object) -> Iterator[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, Mapping):
        for item in found.values():
            yield from _leaves(item)
    elif isinstance(found, tuple | list):
        for item in found:
            yield from _leaves(item)
    elif dataclasses.is_dataclass(found) and not isinstance(found, type):
        for field in dataclasses.fields(found):
            yield from _leaves(getattr(found, field.name))
    elif found is not None:
        raise PyBudaError(f"a module returned a {type(found).__name__}; tensors were expected")


def _outputs(found: object) -> list[Tensor]:
    items = [*found] if isinstance(found, tuple | list) else [found]
    wrong = [type(item).__name__ for item in items if not isinstance(item, Tensor)]
    if wrong or not items:
        raise PyBudaError(
            f"forward returned {', '.join(wrong) or 'nothing'}; pybuda tensors were expected"
        )
    return [item for item in items if isinstance(item, Tensor)]
