"""Microbatches: what is pushed to a device at once, cut along dimension 0 into samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from .errors import PyBudaError
from .formats import format_of
from .tensor import Tensor, to_torch


@dataclass(frozen=True)
class Microbatch:
    """Inputs of a module, and their names if they were pushed as keyword arguments."""

    tensors: tuple[torch.Tensor, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, pushed: Sequence[object]) -> Microbatch:
        """Return a copy of what was pushed: tensors, one tuple or list of them, or one dictionary.

        Raises `PyBudaError` for anything else, and for tensors that do not fit together.
        """
        given = pushed[0] if len(pushed) == 1 else pushed
        names: tuple[str, ...] = ()
        if isinstance(given, Mapping):
            names, given = tuple(given), tuple(given.values())
        values = given if isinstance(given, tuple | list) else (given,)
        found = cls(tuple(_copied(value) for value in values), names)
        if not found.tensors or not found.size:
            raise PyBudaError("a microbatch without tensors, or without samples, came")
        return found

    @property
    def size(self) -> int:
        """The number of samples. Raises `PyBudaError` if tensors have different numbers."""
        sizes = {tensor.shape[0] if tensor.ndim else 1 for tensor in self.tensors} - {1}
        if len(sizes) > 1:
            shapes = ", ".join(str([*tensor.shape]) for tensor in self.tensors)
            raise PyBudaError(
                f"inputs of {shapes} came together: their first dimension is the microbatch, which "
                "is one for all, or 1"
            )
        return sizes.pop() if sizes else 1

    def ordered(self, names: Sequence[str]) -> Microbatch:
        """Return the tensors in the order of `names`, none for those that were pushed in order.

        Raises `PyBudaError` if the names are others.
        """
        if sorted(names) != sorted(self.names):
            raise PyBudaError(
                f"inputs {_spelled(self.names)} came, those of the first microbatch were "
                f"{_spelled(names)}"
            )
        given = dict(zip(self.names, self.tensors, strict=True)) if names else {}
        return Microbatch(tuple(given[name] for name in names), tuple(names)) if names else self

    def with_targets(self, targets: Microbatch | None) -> Microbatch:
        """Return the tensors with those of `targets` behind them."""
        return self if targets is None else Microbatch((*self.tensors, *targets.tensors))

    def samples(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Yield the tensors of each sample; what has one for all is part of each."""
        for index in range(self.size):
            yield tuple(
                tensor[index : index + 1] if tensor.ndim and tensor.shape[0] > 1 else tensor
                for tensor in self.tensors
            )


def joined(samples: Sequence[Sequence[torch.Tensor]]) -> tuple[torch.Tensor, ...]:
    """Return the outputs of all samples, along a first dimension that is the microbatch."""
    return tuple(
        torch.cat(each) if each[0].ndim and each[0].shape[0] == 1 else torch.stack(each)
        for each in (list(outputs) for outputs in zip(*samples, strict=True))
    )


def told(tensors: Iterable[torch.Tensor]) -> object:
    """Return what queues of the program get: a list of tensors."""
    return [Tensor(tensor) for tensor in tensors]


def _copied(value: object) -> torch.Tensor:
    """Return a copy: the program may write to its tensor before a device has read it."""
    tensor = (value.on_device() if isinstance(value, Tensor) else to_torch(value)).detach()
    format_of(tensor.dtype)
    return tensor.clone()


def _spelled(names: Sequence[str]) -> str:
    return f"called {', '.join(names)}" if names else "without names"
