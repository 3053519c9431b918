"""Finds addresses below a ceiling by branch and bound, where other plans leave gaps that matter.

Spans are placed from the bottom up. The next one is always the one that can lie lowest: on the
highest end below it, its support. It is placed there, or it is passed over; then it has to lie on
another span that is still to come, which must begin before its own end would have been, since it
could drop into its old place otherwise. Spans that no longer have anything to do with each other
are placed each part for itself.

A branch is given up when the spans that are left do not fit at some moment: each has a lowest
address at which it may begin, so that they are jobs of one machine with release dates, and the
ceiling is the date by which all must be done. (With breaks allowed that has an exact answer, the
largest sum of a date and the sizes of all that are released from then on: Horn, 1974.)

After Moffitt, MiniMalloc (ASPLOS 2023): the order from the bottom up, the dominance rule, the
parts and three orders of equals in turns, each with twice the work of the round before. Where there
is slack, they look for a plan without any in turns, too: that prunes most.

Work is counted, not timed, so that the result is the same on every host.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .pressure import Ints, Spans

Bools = npt.NDArray[np.bool_]

# Work is counted in entries of the table of who lives when. A step has work of its own beside,
# some 100 microseconds.
_STEP_WORK = 10_000

SEARCH_WORK = 4_000_000_000
"""What a search may do where nothing fits without it: about a minute."""

QUICK_WORK = 200_000_000
"""What it may do where there is another way: seconds, of which networks take a quarter at most."""

_FIRST_STEPS = 2  # for each span, in the first round

# Beyond these many entries of the largest table, a search of that work would not get anywhere.
_LARGEST_TABLE = 2_000_000

# Which of the spans with the same support goes first: the one with the largest of these, and
# where they are equal, of the next. Parts are ordered by what is crowded in them, or all as once.
_KEYS = (("length", "area", "crowd"), ("crowd", "area", "length"), ("crowd", "length", "area"))
_ORDERS = tuple((keys, anew) for anew in (True, False) for keys in _KEYS)

_NEVER = np.iinfo(np.int64).max // 2

_Answer = Generator["_Answer", bool, bool]


class _OutOfWorkError(Exception):
    """A search has used up what it may do."""


@dataclass
class _Budget:
    """What a search may still do: a number of steps, and the work of all searches together."""

    steps: int
    work: int

    def spend(self, work: int) -> None:
        """Count one step. Raises `_OutOfWorkError` if it may not be done."""
        self.steps -= 1
        self.work -= work
        if min(self.steps, self.work) < 0:
            raise _OutOfWorkError


@dataclass(frozen=True)
class _Part:
    """Spans that are still to be placed, as parallel arrays.

    `support` is the lowest address that is free of what has been placed. A span that was
    `passed` over does not lie there. Those with a low `rank` go first.
    """

    members: Ints
    support: Ints
    passed: Bools
    rank: Ints

    def __len__(self) -> int:
        return len(self.members)

    def take(self, indices: Ints) -> _Part:
        return _Part(
            self.members[indices], self.support[indices], self.passed[indices], self.rank[indices]
        )


@dataclass(frozen=True)
class _Table:
    """What does not change about the spans of a part: sizes, who lives with whom, and who when.

    `crowd` has a row for each span and a column for each moment at which no more can begin to
    live together: the span's size where it is alive.
    """

    sizes: Ints
    together: Bools
    crowd: Ints

    @classmethod
    def of(cls, spans: Spans) -> _Table:
        meet = (spans.first[:, None] <= spans.last) & (spans.first <= spans.last[:, None])
        np.fill_diagonal(meet, val=False)
        moments = np.unique(spans.first)
        # A moment counts if a span ends before the next begins; all others are less crowded.
        ends = np.sort(spans.last)
        following = np.append(moments[1:], spans.last.max() + 1)
        moments = moments[np.searchsorted(ends, moments) < np.searchsorted(ends, following)]
        alive = (spans.first[:, None] <= moments) & (moments <= spans.last[:, None])
        return cls(spans.sizes, meet, alive * spans.sizes[:, None])


def fit_below(spans: Spans, ceiling: int, work: int = SEARCH_WORK) -> Ints | None:
    """Return addresses at which every span ends at `ceiling` or below; None if none were found.

    All sizes have to be positive. That none were found proves nothing: no more than `work` is done.
    """
    if len(spans) == 0:
        return np.zeros(0, dtype=np.int64)
    if len(spans) ** 2 > _LARGEST_TABLE:
        return None
    crowd = _Table.of(spans).crowd
    if crowd.size >= _LARGEST_TABLE:
        return None
    ceilings = {ceiling, min(int(crowd.sum(axis=0).max()), ceiling)}
    steps = _FIRST_STEPS * len(spans)
    while work > 0:
        for keys, anew in _ORDERS:
            for below in sorted(ceilings, reverse=True):
                search = _Search(spans, below, (keys, anew), _Budget(steps, work))
                try:
                    if search.run():
                        return search.addresses
                    ceilings.remove(below)  # nothing fits there, in whatever order
                except _OutOfWorkError:
                    work = search.budget.work
            if ceiling not in ceilings:
                return None
        steps *= 2
    return None


class _Search:
    """One search in one order, with a budget to spend; `addresses` are what it has found."""

    def __init__(
        self, spans: Spans, ceiling: int, order: tuple[tuple[str, ...], bool], budget: _Budget
    ) -> None:
        self._spans = spans
        self._ceiling = ceiling
        self._keys, self._anew = order
        self.budget = budget
        self.addresses: Ints = np.full(len(spans), -1, dtype=np.int64)

    def run(self) -> bool:
        """Return whether all spans fit. Raises `_OutOfWorkError`."""
        count = len(self._spans)
        zeros = np.zeros(count, dtype=np.int64)
        everything = self._ranked(_Part(np.arange(count), zeros, zeros.astype(bool), zeros))
        # Depth first, with a stack of our own: there may be more spans than Python has frames.
        stack: list[_Answer] = [self._all(self._parts(everything), 0)]
        answer: bool | None = None
        while stack:
            try:
                stack.append(next(stack[-1]) if answer is None else stack[-1].send(answer))
                answer = None
            except StopIteration as end:
                stack.pop()
                answer = bool(end.value)
        return bool(answer)

    def _parts(self, part: _Part) -> list[_Part]:
        """Return `part` as what has nothing to do with each other, the smallest first."""
        if len(part) == 0:
            return []
        first, last = self._spans.first[part.members], self._spans.last[part.members]
        by_begin = np.argsort(first, kind="stable")
        reached = np.maximum.accumulate(last[by_begin])
        cuts = np.flatnonzero(first[by_begin][1:] > reached[:-1]) + 1
        pieces = sorted(np.split(by_begin, cuts), key=len)
        if len(pieces) == 1:
            return [part]
        parts = [part.take(piece) for piece in pieces]
        return [self._ranked(part) for part in parts] if self._anew else parts

    def _ranked(self, part: _Part) -> _Part:
        spans = self._spans.take(part.members)
        table = _Table.of(spans).crowd
        length = spans.last - spans.first + 1
        keys: Mapping[str, Ints] = {
            "length": length,
            "area": length * spans.sizes,
            "crowd": ((table > 0) * table.sum(axis=0)).max(axis=1),
        }
        rank = np.empty(len(part), dtype=np.int64)
        rank[np.lexsort([-keys[key] for key in reversed(self._keys)])] = np.arange(len(part))
        return _Part(part.members, part.support, part.passed, rank)

    def _all(self, parts: list[_Part], level: int) -> _Answer:
        """Place all parts, each for itself."""
        for part in parts:
            if not (yield self._one(part, level)):
                return False
        return True

    def _one(self, part: _Part, level: int) -> _Answer:
        """Place connected spans, none below `level`: each is tried in turn as the lowest."""
        table = _Table.of(self._spans.take(part.members))
        passed = part.passed.copy()
        lowest = part.support
        while True:
            self.budget.spend(_STEP_WORK + table.crowd.size)
            level = max(level, int(part.support[~passed].min(initial=_NEVER)))
            tops = part.support + table.sizes
            if level >= tops.min():  # what ends there would lie below this one, or has not come
                return False
            raised = _raise_passed(table, np.maximum(lowest, level), tops, passed)
            if raised is None or _needed(table, raised) > self._ceiling:
                return False
            lowest = raised
            ready = np.flatnonzero(~passed & (part.support == part.support[~passed].min()))
            chosen = int(ready[np.argmin(part.rank[ready])])
            rest = self._place(part, passed, table, chosen)
            if (yield self._all(self._parts(rest), level)):
                return True
            passed[chosen] = True

    def _place(self, part: _Part, passed: Bools, table: _Table, chosen: int) -> _Part:
        """Put one span on its support; return the others with what that changes for them."""
        address = part.support[chosen]
        self.addresses[part.members[chosen]] = address
        end = address + table.sizes[chosen]
        lifted = table.together[chosen] & (part.support < end)
        rest = _Part(part.members, np.where(lifted, end, part.support), passed & ~lifted, part.rank)
        return rest.take(np.delete(np.arange(len(part)), chosen))


def _raise_passed(table: _Table, lowest: Ints, tops: Ints, passed: Bools) -> Ints | None:
    """Return the lowest addresses once spans that were passed over lie on others.

    None if there is none for one of them to lie on: what begins before its end, had it stayed.
    """
    waiting = np.flatnonzero(passed)
    if not len(waiting):
        return lowest
    lowest = lowest.copy()
    while True:
        below = table.together[waiting] & (lowest < tops[waiting, None])
        on_others = np.where(below, lowest + table.sizes, _NEVER).min(axis=1)
        if on_others.max() == _NEVER:
            return None
        raised = np.maximum(on_others, lowest[waiting])
        if (raised == lowest[waiting]).all():
            return lowest
        lowest[waiting] = raised


def _needed(table: _Table, lowest: Ints) -> int:
    """Return the lowest ceiling that could do: at each moment, a begin and all from it on."""
    from_above = np.argsort(-lowest, kind="stable")
    sums = np.cumsum(table.crowd[from_above], axis=0)
    # A moment at which a span is not alive counts too little with it, never too much.
    return int((sums + lowest[from_above, None]).max())
