"""What a device has trained: values that the modules of the program do not have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from .errors import HostError
from .models import Mark, mark


@dataclass(frozen=True)
class Trained:
    """A parameter or buffer of a module, how it was before, and its value on the device now.

    The value is None where a run that was broken off has left none.
    """

    name: str
    tensor: torch.Tensor
    before: Mark | None
    value: torch.Tensor | None


@dataclass(frozen=True)
class TrainedValues:
    """Values by the tensors that they are of, which the program has not written to since.

    `raises` makes errors from sentences.
    """

    found: Sequence[Trained] = ()
    raises: Callable[[str], Exception] = HostError

    def values(self) -> Mapping[int, torch.Tensor]:
        """Return the values that still hold, by the ids of tensors.

        Raises an error where one was lost.
        """
        held = [
            item
            for item in self.found
            if item.before is not None and mark(item.tensor) == item.before
        ]
        lost = [item.name for item in held if item.value is None]
        if lost:
            raise self.raises(
                f"training was broken off, and with it went '{lost[0]}'; give the modules values, "
                "and place them anew"
            )
        return {id(item.tensor): item.value for item in held if item.value is not None}

    def updated(self, given: Mapping[str, tuple[torch.Tensor, torch.Tensor]]) -> TrainedValues:
        """Return these values and those `given`, by name, each with the tensor that it is of."""
        fresh = [
            Trained(name, tensor, mark(tensor), value.detach().to(tensor.dtype, copy=True))
            for name, (tensor, value) in given.items()
        ]
        replaced = {id(item.tensor) for item in fresh}
        kept = (item for item in self.found if id(item.tensor) not in replaced)
        return replace(self, found=[*kept, *fresh])

    @contextmanager
    def within(self, part: torch.nn.Module) -> Iterator[None]:
        """Let the tensors of a torch module have these values for a while."""
        known, own = self.values(), (*part.parameters(), *part.buffers())
        tensors = {id(tensor): tensor for tensor in own}
        before = {number: tensors[number].data for number in tensors.keys() & known.keys()}
        for number in before:
            tensors[number].data = known[number]
        try:
            yield
        finally:
            for number, data in before.items():
                tensors[number].data = data


NOTHING = TrainedValues()
"""What is held where nothing was trained."""


def named(
    modules: Iterable[tuple[str, Mapping[str, torch.nn.Parameter]]],
) -> dict[str, torch.nn.Parameter]:
    """Return the parameters of several modules, which come with their names, by name.

    Names that several modules have get that of the module in front: `head.weight`.
    """
    found, owners = [*modules], defaultdict[str, set[int]](set)
    for _, parameters in found:
        for name, parameter in parameters.items():
            owners[name].add(id(parameter))
    return {
        name if len(owners[name]) == 1 else f"{module}.{name}": parameter
        for module, parameters in found
        for name, parameter in parameters.items()
    }
