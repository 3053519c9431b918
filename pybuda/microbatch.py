"""Microbatches: what is pushed to a device at once, cut along dimension 0 into samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from sambahost.samples import Samples

from .errors import PyBudaError
from .formats import format_of
from .tensor import Tensor, to_torch


class Microbatch(Samples):
    """Inputs of a module, and their names if they were pushed as keyword arguments."""

    raises = PyBudaError

    @classmethod
    def of(cls, pushed: Sequence[object]) -> Microbatch:
        """Return a copy of what was pushed: tensors, one tuple or list of them, or one dictionary.

        Raises `PyBudaError` for anything else, and for tensors that do not fit together.
        """
        given = pushed[0] if len(pushed) == 1 else pushed
        names: tuple[str, ...] = ()
        if isinstance(given, tuple | list):
            values: Iterable[object] = given
        elif isinstance(given, Mapping):
            names, values = tuple(given), given.values()
        else:
            values = (given,)
        found = cls(tuple(map(_copied, values)), names)
        if not found.tensors or not found.size:
            raise PyBudaError("a microbatch without tensors, or without samples, came")
        return found

    @classmethod
    def sampled(cls, given: object) -> Microbatch | None:
        """Return what `of` makes of samples, None where there are none."""
        return None if isinstance(given, tuple | list | Mapping) and not given else cls.of((given,))


def told(tensors: Iterable[torch.Tensor]) -> object:
    """Return what queues of the program get: a list of tensors."""
    return [Tensor(tensor) for tensor in tensors]


def _copied(value: object) -> torch.Tensor:
    """Return a copy: the program may write to its tensor before a device has read it."""
    tensor = value.on_device() if isinstance(value, Tensor) else to_torch(value)
    if tensor.layout is not torch.strided:
        raise PyBudaError(f"a tensor of {tensor.layout} came; push its to_dense()")
    format_of(tensor.dtype)
    return tensor.detach().clone() if tensor.requires_grad else tensor.clone()
