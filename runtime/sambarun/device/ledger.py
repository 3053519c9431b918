"""Which symbols' planned memory holds their value: written by a run, not overwritten since."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

import pef
from pef.states import States
from sambarun.arrays import Array


class Writes(NamedTuple):
    """What a plan writes: `placed` symbols, in this order, to their planned addresses.

    `hidden` symbols are computed and kept nowhere, so an older value of them is out of date.
    """

    placed: tuple[int, ...]
    hidden: tuple[int, ...]


class _Effect(NamedTuple):
    """What a plan does to the ledger: symbols whose value is gone, and those that are there."""

    lost: frozenset[int]
    left: frozenset[int]


class Ledger:
    """A record of runs, looked at only when somebody wants to read an older result.

    A pack and its members count as one piece of memory: to write a member leaves the others as
    they are, and the pack is there once all members are.
    """

    def __init__(self, program: pef.Program, states: States) -> None:
        self._program = program
        self._packs = states.packs
        self._home = {part: flat for flat, parts in states.packs.items() for part in parts}
        self._valid: set[int] = set()
        self._pending: dict[Writes, int] = {}  # and when it was, of all that is noted
        self._notes = 0
        self._effects: dict[Writes, _Effect] = {}

    def note(self, writes: Writes) -> None:
        """Record that a plan has run."""
        self._notes += 1
        self._pending[writes] = self._notes

    def forget(self, symbols: Iterable[int]) -> None:
        """Record that the content of `symbols`, and of packs around them, is undefined."""
        self._catch_up()
        for index in symbols:
            self._valid.discard(index)
            self._valid.discard(self._home.get(index, index))
            self._valid.difference_update(self._packs.get(index, ()))

    def holds(self, index: int) -> bool:
        """Tell whether the planned memory of symbol `index` holds its value."""
        self._catch_up()
        return index in self._valid or (
            index in self._packs and self._valid.issuperset(self._packs[index])
        )

    def hold(self, indices: frozenset[int]) -> bool:
        """Tell whether the planned memory of each of these symbols, none a pack, has its value."""
        self._catch_up()
        return self._valid.issuperset(indices)

    def _catch_up(self) -> None:
        """Apply the runs since the last question; to apply them twice does no harm."""
        for writes in sorted(self._pending, key=self._pending.__getitem__):
            effect = self._effects.get(writes)
            if effect is None:
                effect = self._effects[writes] = self._effect(writes)
            self._valid -= effect.lost
            self._valid |= effect.left
        self._pending.clear()

    def _effect(self, writes: Writes) -> _Effect:
        last = {self._home.get(s, s): position for position, s in enumerate(writes.placed)}
        written = np.fromiter(last, np.int64, len(last))
        when = np.fromiter(last.values(), np.int64, len(last))
        over = {unit: self._overlaps(unit, written) & (written != unit) for unit in last}
        # A pack that is written in part keeps its other parts, unless something else writes there.
        kept = {unit for unit in last if not over[unit].any()}
        lost = {self._home.get(s, s) for s in self._overwritten(written)} - kept
        # Of what was written, that is left over which nothing else was written later.
        left = {
            symbol
            for position, symbol in enumerate(writes.placed)
            if not (over[self._home.get(symbol, symbol)] & (when > position)).any()
        }
        return _Effect(
            frozenset(self._with_parts(lost).union(writes.hidden)),
            frozenset(self._with_parts(left)),
        )

    def _with_parts(self, symbols: set[int]) -> set[int]:
        return symbols.union(*(self._packs.get(symbol, ()) for symbol in symbols))

    def _overwritten(self, written: Array) -> set[int]:
        """Return every piece of memory that overlaps one of `written`."""
        if not len(written):
            return set()
        starts, ends = self._bounds
        order = written[np.argsort(starts[written], kind="stable")]
        reach = np.maximum.accumulate(ends[order])
        # Of the written pieces that begin before the end of another, one reaches into it.
        before = np.searchsorted(starts[order], ends, side="left") - 1
        hit = (before >= 0) & (reach[np.maximum(before, 0)] > starts)
        return {int(index) for index in np.flatnonzero(hit)}

    def _overlaps(self, unit: int, others: Array) -> Array:
        starts, ends = self._bounds
        return np.asarray((starts[others] < ends[unit]) & (ends[others] > starts[unit]))

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        """Where each symbol begins and ends, regions one after the other; nowhere without place."""
        bases: dict[pef.RegionKind, int] = {}
        total = 0
        for region in self._program.regions:
            bases[region.kind] = total
            total += region.used
        count = len(self._program.symbols)
        starts, ends = np.full(count, total, np.int64), np.zeros(count, np.int64)
        for index, symbol in enumerate(self._program.symbols):
            if symbol.allocation is not None and symbol.size:
                place = self._program.allocations[symbol.allocation]
                starts[index] = bases[place.region] + place.address + symbol.offset
                ends[index] = starts[index] + symbol.size
        return starts, ends
