"""What optimizers on the host say of the hyperparameters of a program, as far as it is new.

The numbers of a parameter group are argins under the name of the group: `net.0.lr`, `net.0.beta1`.
An optimizer counts with what it holds when a run begins, so that torch's schedulers need not know
of the device; what has not changed since it was sent is not sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from torch import Tensor
from torch.optim import Optimizer

from sambaflow.samba.errors import SambaError

from .settings import argin_options, group_names, kind_of

if TYPE_CHECKING:
    from .settings import Group

_NORM = "max_grad_norm"
_Argins = tuple[tuple[str, ...], ...]
"""For each number of a group the argins that it sets: one, more in a program of several graphs."""


@dataclass(slots=True)
class _Watched:
    """A parameter group, and what it held when it was last looked at.

    `get` returns its options as torch keeps them, `argins` belong to the numbers in them.
    """

    optimizer: Optimizer
    number: int
    get: Callable[[Group], tuple[object, ...]]
    argins: _Argins
    last: tuple[object, ...] | None = None


class Values:
    """The numbers of `optimizers` that are among the argins `names` of a program.

    In a program of several graphs the name of one, of `graphs`, may stand before an argin.
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        names: Collection[str],
        graphs: Collection[str] = (),
    ) -> None:
        def spelled(name: str) -> tuple[str, ...]:
            prefixed = (f"{graph}.{name}" for graph in graphs)
            return tuple(item for item in (name, *prefixed) if item in names)

        called = group_names(optimizers)
        self._groups = [
            _Watched(optimizer, number, itemgetter(*options), tuple(map(spelled, argins)))
            for optimizer in optimizers
            for options in (argin_options(kind_of(optimizer)),)
            for number, group in enumerate(called[id(optimizer)])
            for argins in ([f"{group}.{item}" for each in options for item in _parts(each)],)
        ]
        self._clips = [item for item in optimizers if getattr(item, _NORM, None)][:1]
        self._norm = spelled(_NORM)
        self._sent: dict[str, float] = {}

    def news(self) -> dict[str, float]:
        """Return what optimizers hold that is not what they held at the last call: all at first.

        Raises `SambaError` for an optimizer with other groups than when it was traced.
        """
        found: dict[str, float] = {}
        for watched in self._groups:
            groups = watched.optimizer.param_groups
            if watched.number >= len(groups):
                raise SambaError(
                    f"the {type(watched.optimizer).__name__} has {len(groups)} parameter groups, "
                    f"and had more when it was traced; call trace_graph again"
                )
            now = watched.get(groups[watched.number])
            if now != watched.last:
                found.update(_numbers(watched, now))
        for optimizer in self._clips:
            norm = getattr(optimizer, _NORM, None)
            if norm is not None:
                found.update((name, float(norm)) for name in self._norm)
        if found:
            found = {name: value for name, value in found.items() if self._sent.get(name) != value}
            self._sent.update(found)
        return found

    def take_back(self, names: Collection[str]) -> None:
        """Let `names` be news again: the run that they were for has failed."""
        for name in names:
            self._sent.pop(name, None)
        for watched in self._groups:
            watched.last = None


def _numbers(watched: _Watched, now: tuple[object, ...]) -> Iterator[tuple[str, float]]:
    """Yield the numbers in `now` by argin, and remember it; tensors are looked at each time."""
    watched.last = None if any(isinstance(value, Tensor) for value in now) else now
    flat = [
        item for value in now for item in (value if isinstance(value, tuple | list) else [value])
    ]
    for value, names in zip(flat, watched.argins, strict=True):
        assert isinstance(value, int | float | Tensor)
        yield from ((name, float(value)) for name in names)


def _parts(option: str) -> tuple[str, ...]:
    """Return what a program calls the numbers of an option of torch."""
    return ("beta1", "beta2") if option == "betas" else (option,)
