"""Which buffers spill from a region that is too small, so that a run takes as little as possible.

The solution starts from the policy's (`pressure.spills_by_policy`). Others are made greedily, from
the prices of room and from nothing, and the best is improved by trying all solutions for those
buffers about which prices say least. The best of all is taken, so it is never worse than the
policy's. Work is counted, not timed: equal input gives equal solutions on every host.

Prices of room: what a byte is worth at each moment, and what hiding behind work is worth.

    L(p, q) = sum over flows of (1 - q) floor + q moving
            + sum over moments of p excess + sum over buffers of min(0, reduced)
    reduced = sum over flows of q (what it takes longer in the far region) - size * sum of its p

This is the Lagrangian relaxation of the integer program `SpillProblem` (Geoffrion, 1974), for
prices p of at least 0 and q between 0 and 1. No solution takes less than L, whatever the prices; a
buffer whose reduced cost is below zero had better spill at these. Subgradient steps (Held, Wolfe
and Crowder, 1974) make L large.

All solutions for a few buffers, the others staying where they are, are tried by branch and bound,
buffer by buffer. A branch is cut where its bound is no less than the best solution: the seconds of
those that have spilled already, for each that follows costs something, or what the prices say
(`Prices.bound`, and more for each that goes against them). Where no more buffers than a few are in
question, the result is optimal.

Where single streams limit flows, the first to spill may cost more than those that follow, and there
is no such bound: then solutions are tried one by one, for fewer buffers at a time.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from .region_times import Bools, Floats, Ints, added
from .spilling import SpillProblem

_ROUNDS = 300
_ROUND_WORK = 30_000_000
_TRIALS = 30
_TRIAL_WORK = 1_000_000
_AT_ONCE = 128
_NOTHING = 1e-15  # seconds


def spills_by_cost(problem: SpillProblem, start: Bools) -> Bools:
    """Return which buffers spill; `start` is a solution to begin with.

    It is returned as it is where even that does not fit, or where spilling costs nothing.
    """
    prices = start_prices(problem)
    if (problem.over(start) > 0).any() or prices is None:
        return start
    best, least = start, problem.seconds(start)
    work = len(problem) + len(problem.excess) + len(problem.times.flow)
    rounds = max(min(_ROUNDS, _ROUND_WORK // work), 30)
    every = -(-rounds // max(min(_TRIALS, _TRIAL_WORK // work), 3))
    for number in range(rounds):
        if number % every == 0:
            tried = repaired(problem, prices.spilled)
            if (seconds := problem.seconds(tried)) < least:
                best, least = tried, seconds
        if not prices.step(least):
            break
    best = best_of_few(problem, best, prices).copy()
    _bring_back(problem, best)
    return best


def repaired(problem: SpillProblem, spilled: Bools) -> Bools:
    """Return a solution that fits, from one that need not: more spill, then some come back."""
    spilled = spilled.copy()
    _spill_more(problem, spilled)
    _bring_back(problem, spilled)
    return spilled


def _spill_more(problem: SpillProblem, spilled: Bools) -> None:
    """Spill those that cost least for each byte of room that is needed."""
    while (over := problem.over(spilled)).max(initial=0) > 0:
        relief = _relief(problem, over)
        cost = np.maximum(problem.changes(spilled), 0.0)
        helps = ~spilled & (relief > 0)
        price = np.where(helps, cost / np.maximum(relief, 1), np.inf)
        chosen = _first(problem, price)
        if not len(chosen):
            return
        for index in chosen.tolist():
            here = over[problem.low[index] : problem.high[index]]
            if here.max() > 0:
                spilled[index] = True
                here -= problem.sizes[index]


def _bring_back(problem: SpillProblem, spilled: Bools) -> None:
    """Let those come back that fit and are no cheaper spilled, the most expensive first."""
    while spilled.any():
        over, change = problem.over(spilled), problem.changes(spilled)
        fits = spilled & (change < _NOTHING) & (problem.most_over(over) + problem.sizes <= 0)
        chosen = _first(problem, np.where(fits, change, np.inf))
        if not len(chosen):
            return
        for index in chosen.tolist():
            here = over[problem.low[index] : problem.high[index]]
            if here.max() + problem.sizes[index] <= 0:
                spilled[index] = False
                here += problem.sizes[index]


def _relief(problem: SpillProblem, over: Ints) -> Floats:
    """Return by how much less would be too much without each, over all moments together.

    That is a bound where it is larger than what is too much at some of them, but not at others.
    """
    excess = np.maximum(over, 0)
    amount = np.append(0, np.cumsum(excess))
    count = np.append(0, np.cumsum(excess > 0))
    moments = count[problem.high] - count[problem.low]
    missing = amount[problem.high] - amount[problem.low]
    relief: Floats = np.minimum(problem.sizes * moments, missing).astype(np.float64)
    return relief


def _first(problem: SpillProblem, price: Floats) -> Ints:
    """Return those with the lowest finite prices: one, and several at once of very many."""
    count = 1 + len(problem) // _AT_ONCE
    lowest = np.argsort(price, kind="stable")[:count]
    return lowest[np.isfinite(price[lowest])]


_PATIENCE = 15
_SHORTEST_STEP = 1e-4


class Prices:
    """Prices while they are improved.

    `bound` is the largest L so far, `reduced` the costs there; `spilled` are those that had better
    spill at the prices of the last step.
    """

    def __init__(self, problem: SpillProblem, extra: Floats, edges: Ints, owner: Ints) -> None:
        """`extra` is what each of `edges` takes longer in the far region, `owner` its buffer."""
        times = problem.times
        moving = times.linear(problem.homes)
        self._problem = problem
        self._extra, self._owner, self._flow = extra, owner, times.flow[edges]
        self._floor, self._moving = times.floor, moving
        self._hides = times.floor > moving
        self._fixed = times.fixed
        sizes = problem.sizes.astype(np.float64)
        moments = (problem.high - problem.low).astype(np.float64)
        self._scale = _sum(extra) / _sum(sizes * moments)
        self._room = np.ones(len(problem.excess))
        self._hidden = np.where(self._hides, 0.5, 1.0)
        self._best = self._room, self._hidden
        self._length, self._waited = 1.0, 0
        self.bound = -np.inf
        self.reduced = np.zeros(len(problem))
        self.spilled: Bools = np.zeros(len(problem), dtype=bool)

    def extra_of(self, index: int) -> tuple[Ints, Floats]:
        """Return the flows that move a buffer, each once, and what they take longer for it."""
        own = self._owner == index
        return self._flow[own], self._extra[own]

    def step(self, upper: float) -> bool:
        """Look at L, and make one step; tell whether more of them make sense.

        `upper` are the seconds of the best solution so far.
        """
        problem = self._problem
        room, hidden = self._room, self._hidden
        worth = np.append(0.0, np.cumsum(self._scale * room))
        own = added(self._owner, hidden[self._flow] * self._extra, len(problem))
        reduced = own - problem.sizes * (worth[problem.high] - worth[problem.low])
        spilled = reduced < 0
        value = (
            self._fixed
            + _sum((1 - hidden) * self._floor + hidden * self._moving)
            + _sum(self._scale * room * problem.excess)
            + _sum(np.minimum(reduced, 0.0))
        )
        self.spilled = spilled
        if value > self.bound + 1e-9 * abs(upper):
            self.bound, self.reduced = value, reduced
            self._best, self._waited = (room, hidden), 0
        else:
            self._waited += 1
            if self._waited >= _PATIENCE:
                self._length, self._waited = self._length / 2, 0
                room, hidden = self._best
        return self._length > _SHORTEST_STEP and self._move(room, hidden, upper - value)

    def _move(self, room: Floats, hidden: Floats, gap: float) -> bool:
        """Step along the subgradient, as far as the gap to a solution allows."""
        problem, spilled = self._problem, self.spilled
        towards_room = self._scale * problem.over(spilled)
        moved = added(self._flow, self._extra * spilled[self._owner], len(self._floor))
        towards_hidden = np.where(self._hides, self._moving + moved - self._floor, 0.0)
        towards_room = np.where((room <= 0) & (towards_room < 0), 0.0, towards_room)
        stuck = ((hidden <= 0) & (towards_hidden < 0)) | ((hidden >= 1) & (towards_hidden > 0))
        towards_hidden = np.where(stuck, 0.0, towards_hidden)
        norm = _sum(towards_room * towards_room) + _sum(towards_hidden * towards_hidden)
        if norm == 0.0 or gap <= 0.0:
            return False
        length = self._length * gap / norm
        self._room = np.maximum(room + length * towards_room, 0.0)
        free = np.clip(hidden + length * towards_hidden, 0.0, 1.0)
        self._hidden = np.where(self._hides, free, 1.0)
        return True


def start_prices(problem: SpillProblem) -> Prices | None:
    """Return prices to start from; None where spilling costs nothing, or an unknown amount."""
    times = problem.times
    near, far = times.rates[problem.near], times.rates[problem.far]
    if near is None or far is None or far >= near or not len(problem):
        return None
    position = np.full(len(times.names), -1, dtype=np.int64)
    position[problem.buffers] = np.arange(len(problem))
    edges = np.flatnonzero(position[times.buffer] >= 0)
    extra = times.nbytes[edges] * (1 / far - 1 / near)
    if not extra.any():
        return None
    return Prices(problem, extra, edges, position[times.buffer[edges]])


def _sum(numbers: Floats) -> float:
    """Return the sum, added up in order, as every machine does it."""
    return float(np.cumsum(numbers)[-1]) if len(numbers) else 0.0


_FEW = 40
_STREAMS = 60  # buffers that are tried where streams limit flows
_WINDOW = 10  # so many of them at a time
_NODES = 20_000
_EQUAL = 1e-12


def best_of_few(problem: SpillProblem, spilled: Bools, prices: Prices) -> Bools:
    """Return the best solution found that differs from `spilled` in a few buffers alone.

    Those are the ones about which prices say least.
    """
    order = np.argsort(np.abs(prices.reduced), kind="stable")
    if problem.times.stream is None:
        return _Branches(problem, spilled, prices, order[:_FEW]).run()
    for first in range(0, min(len(order), _STREAMS), _WINDOW // 2):
        spilled = _best_of_all(problem, spilled, order[first : first + _WINDOW])
    return spilled


def _best_of_all(problem: SpillProblem, spilled: Bools, few: Ints) -> Bools:
    """Return the best solution that differs in a few buffers, of which every one is tried."""
    best, least = spilled, problem.seconds(spilled)
    for ways in product((False, True), repeat=len(few)):
        tried = spilled.copy()
        tried[few] = ways
        if (problem.over(tried) <= 0).all() and (seconds := problem.seconds(tried)) < least:
            best, least = tried, seconds
    return best


class _Branches:
    """One search by branch and bound; `best` is the best solution so far."""

    def __init__(self, problem: SpillProblem, spilled: Bools, prices: Prices, few: Ints) -> None:
        certain = np.abs(prices.reduced)
        # What goes against high prices comes first: it is seen to be wrong at once.
        order = few[::-1]
        stay, gone = spilled.copy(), spilled.copy()
        stay[order], gone[order] = False, True
        against = spilled != (prices.reduced < 0)
        against[order] = False
        self.best = spilled
        self._least = problem.seconds(spilled)
        self._problem = problem
        self._order = order.tolist()
        self._spilled = stay
        self._over, self._over_at_least = problem.over(stay), problem.over(gone)
        self._certain, self._prefers = certain, prices.reduced < 0
        self._bound = prices.bound + float(np.cumsum(np.append(0.0, certain[against]))[-1])
        self._floor = problem.times.floor
        self._moving = problem.times.linear(problem.homes_of(stay))
        self._extra = {index: prices.extra_of(index) for index in self._order}
        self._nodes = _NODES

    def run(self) -> Bools:
        """Return the best solution."""
        if (self._over_at_least <= 0).all():
            self._go(0, self._bound, self._problem.seconds(self._spilled))
        return self.best

    def _go(self, level: int, bound: float, seconds: float) -> None:
        """Try both ways for the buffer of this level; those of later levels have not spilled yet.

        `bound` is what prices say of all solutions from here on, `seconds` what a run takes with
        what has spilled.
        """
        self._nodes -= 1
        if self._nodes < 0 or max(bound, seconds) >= self._least * (1 - _EQUAL):
            return
        if self._over.max() <= 0:
            self.best, self._least = self._spilled.copy(), seconds
            return
        index = self._order[level]
        prefers = bool(self._prefers[index])
        for spills in (prefers, not prefers):
            after = bound + (0.0 if spills == prefers else float(self._certain[index]))
            if spills:
                self._spill(index, level, after, seconds)
            else:
                self._keep(index, level, after, seconds)

    def _spill(self, index: int, level: int, bound: float, seconds: float) -> None:
        span = slice(self._problem.low[index], self._problem.high[index])
        size = self._problem.sizes[index]
        flow, extra = self._extra[index]
        before = self._moving[flow]
        more = np.maximum(self._floor[flow], before + extra)
        more -= np.maximum(self._floor[flow], before)
        self._moving[flow] = before + extra
        self._over[span] -= size
        self._spilled[index] = True
        self._go(level + 1, bound, seconds + float(np.cumsum(more)[-1]) if len(more) else seconds)
        self._spilled[index] = False
        self._over[span] += size
        self._moving[flow] = before

    def _keep(self, index: int, level: int, bound: float, seconds: float) -> None:
        span = slice(self._problem.low[index], self._problem.high[index])
        size = self._problem.sizes[index]
        self._over_at_least[span] += size
        if self._over_at_least[span].max() <= 0:
            self._go(level + 1, bound, seconds)
        self._over_at_least[span] -= size
