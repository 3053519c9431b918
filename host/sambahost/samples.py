"""Microbatches: tensors that come to a device at once, cut along dimension 0 into samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import torch

from .errors import HostError

Tensors: TypeAlias = tuple[torch.Tensor, ...]
Gradients: TypeAlias = tuple[torch.Tensor | None, ...]
"""Of the outputs of a device, or of its inputs: None where no gradient flows."""


@dataclass(frozen=True)
class Samples:
    """A microbatch: inputs of a module, and their names if they came as keyword arguments.

    Subclasses say which errors they raise.
    """

    tensors: Tensors
    names: tuple[str, ...] = ()
    raises: ClassVar[type[Exception]] = HostError

    @property
    def size(self) -> int:
        """The number of samples. Raises an error if tensors have different numbers."""
        if len(self.tensors) == 1:
            return _size(self.tensors[0])
        sizes = {*map(_size, self.tensors)} - {1}
        if len(sizes) > 1:
            shapes = ", ".join(str([*tensor.shape]) for tensor in self.tensors)
            raise self.raises(
                f"inputs of {shapes} came together: their first dimension is the microbatch, which "
                "is one for all, or 1"
            )
        return sizes.pop() if sizes else 1

    def ordered(self, names: Sequence[str]) -> Self:
        """Return the tensors in the order of `names`, none for those that came in order.

        Raises an error if the names are others.
        """
        if names == self.names:
            return self
        if sorted(names) != sorted(self.names):
            raise self.raises(
                f"inputs {_spelled(self.names)} came, those of the first microbatch were "
                f"{_spelled(names)}"
            )
        given = dict(zip(self.names, self.tensors, strict=True)) if names else {}
        return type(self)(tuple(given[name] for name in names), tuple(names)) if names else self

    def with_targets(self, targets: Samples | None) -> Self:
        """Return the tensors with those of `targets` behind them."""
        return self if targets is None else type(self)((*self.tensors, *targets.tensors))

    def samples(self) -> Iterator[Tensors]:
        """Yield the tensors of each sample; what has one for all is part of each."""
        count = self.size
        if count == 1:
            yield self.tensors
            return
        for index in range(count):
            yield tuple(
                tensor[index : index + 1] if tensor.ndim and tensor.shape[0] > 1 else tensor
                for tensor in self.tensors
            )


def _size(tensor: torch.Tensor) -> int:
    return tensor.shape[0] if tensor.ndim else 1


def joined(samples: Iterable[Sequence[torch.Tensor]]) -> Tensors:
    """Return the outputs of all samples, along a first dimension that is the microbatch."""
    return tuple(map(_joined, zip(*samples, strict=True)))


def _joined(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    first = outputs[0]
    is_sample = first.ndim > 0 and first.shape[0] == 1
    if len(outputs) == 1:  # torch takes long to put one beside none
        return first if is_sample else first.unsqueeze(0)
    return torch.cat([*outputs]) if is_sample else torch.stack([*outputs])


def of_sample(gradients: Gradients, index: int, outputs: Sequence[torch.Tensor]) -> Gradients:
    """Return the gradients of the outputs of one sample, which are shaped as `outputs`."""
    return tuple(
        None if gradient is None else gradient[index].reshape(output.shape)
        for gradient, output in zip(gradients, outputs, strict=True)
    )


def gathered(samples: Sequence[torch.Tensor | None], given: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of an input of a microbatch from those of samples.

    It is their sum where all samples have one and the same.
    """
    found = [gradient for gradient in samples if gradient is not None]
    if len(found) < 2:
        return found[0] if found else None
    apart = given.ndim > 0 and given.shape[0] > 1
    return torch.cat(found) if apart else torch.stack(found).sum(0)


def leaves(found: object, raises: Callable[[str], Exception]) -> Tensors:
    """Return the tensors of what a torch module returned, in order, without what is None.

    Objects of other classes, as caches of transformers, give what their attributes hold. Raises an
    error if there are none, and for what is neither a tensor nor holds some.
    """
    tensors = tuple(_leaves(found, raises))
    if not tensors:
        raise raises("a module returned no tensor")
    return tensors


def _leaves(found: object, raises: Callable[[str], Exception]) -> Iterator[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, Mapping):
        for item in found.values():
            yield from _leaves(item, raises)
    elif isinstance(found, tuple | list):
        for item in found:
            yield from _leaves(item, raises)
    elif dataclasses.is_dataclass(found) and not isinstance(found, type):
        for field in dataclasses.fields(found):
            yield from _leaves(getattr(found, field.name), raises)
    elif held := [*_held_by(found, set())]:
        yield from held
    elif found is not None:
        raise raises(f"a module returned a {type(found).__name__}; tensors were expected")


def _held_by(found: object, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the tensors that an object holds in attributes, in objects there too, each once."""
    if isinstance(found, torch.Tensor):
        yield found
    elif id(found) not in seen and not isinstance(found, type | torch.nn.Module):
        seen.add(id(found))
        plain = isinstance(found, Mapping | tuple | list)
        parts: Any = found if plain else getattr(found, "__dict__", {})
        for part in parts.values() if isinstance(parts, Mapping) else parts:
            yield from _held_by(part, seen)


def _spelled(names: Sequence[str]) -> str:
    return f"called {', '.join(names)}" if names else "without names"
