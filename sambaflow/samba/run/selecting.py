"""Which sections a run of the session is to run: looked up, as training asks the same each time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, cast

from sambarun import Selection
from sambarun.selection import Reduction

from .asked import asked_for, selections
from .device import SambaDevice

_PLAIN = (str, int)


SectionsNamed: TypeAlias = (
    "tuple[str | Sequence[str], Sequence[int | Sequence[int]], int | None, int | None]"
)
"""The arguments of a run that name sections: types, ids, and the calls from and until which."""


class SectionsAsked(NamedTuple):
    """The arguments of a run that choose sections, as they were given, and what goes with them.

    `train` is whether dropout and updates are on, `inference` whether the graph is only evaluated.
    """

    types: str | Sequence[str]
    ids: Sequence[int | Sequence[int]]
    begin: int | None
    end: int | None
    reduction: Reduction
    train: bool
    inference: bool


class Selector:
    """Turns what runs ask for into selections of the program on `device`.

    `prepare` is called with those that were not asked for before.
    """

    def __init__(
        self, device: SambaDevice, prepare: Callable[[tuple[Selection, ...]], None]
    ) -> None:
        self._device = device
        self._prepare = prepare
        self._known: dict[Hashable, tuple[Selection, ...]] = {}

    def __call__(self, asked: SectionsAsked) -> tuple[Selection, ...]:
        """Return the runs that were asked for.

        Raises `SambaError` for what contradicts, and for sections that the program does not have.
        """
        listed = _key(asked[:2])
        key = (listed, asked[2:], self._device.graphs.graph)
        found = self._known.get(key)
        if found is None:
            found = self._made(asked)
            self._prepare(found)
            if listed is not None:
                self._known[key] = found
        return found

    def _made(self, asked: SectionsAsked) -> tuple[Selection, ...]:
        device = self._device
        wanted = replace(
            asked_for(asked.types, asked.ids, asked.begin, asked.end),
            reduction=asked.reduction,
            graph=device.graphs.graph,
        )
        return selections(
            wanted, device.program, device.calls, train=asked.train, inference=asked.inference
        )


def _key(given: object) -> Hashable:
    """Return what is equal for equal lists of texts and numbers, None for anything else.

    Types are in it, as 1 and True are one as keys. An iterator has no key: when it is gone another
    may have its identity, and its text.
    """
    kind = type(given)
    if kind in _PLAIN:
        return kind, given
    if kind is not list and kind is not tuple:
        return None
    parts = tuple(map(_key, cast("Sequence[object]", given)))
    return None if None in parts else (kind, parts)
