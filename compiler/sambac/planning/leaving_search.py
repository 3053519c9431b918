"""Who leaves a region that is too small, so that a run takes as little time as can be found.

The answer starts from the policy's: what moves the fewest bytes leaves first, weights last. Others
are made greedily, from what the prices of room say and from nothing, and the best is improved by
trying all answers for those about whom prices say least. The best of all is taken, so it is never
worse than the policy's. Work is counted, not timed: equal input gives equal answers on every host.

Prices of room: what a byte is worth at each moment, and what hiding behind work is worth.

    L(p, q) = sum over flows of (1 - q) floor + q moving
            + sum over moments of p excess + sum over buffers of min(0, reduced)
    reduced = sum over flows of q (what it takes longer in the far region) - size * sum of its p

This is the Lagrangian of `Leaving` without its whole numbers (Geoffrion, 1974), for prices p of at
least 0 and q between 0 and 1. No answer takes less than L, whatever the prices; a buffer whose
reduced cost is below zero had better leave at these. Steps along subgradients (Held, Wolfe and
Crowder, 1974) make L large.

All answers for a few buffers, the others staying where they are, are tried in turn. The search goes
on from buffer to buffer, and leaves a branch where its bound is no less than the best answer: the
seconds of those that have left already, for each that follows costs something, or what the prices
say (`Prices.bound`, and more for each that goes against them). Where no more buffers than a few are
in question, what it finds is the best there is.

Where single streams limit flows, the first to leave may cost more than those that follow, and there
is no such bound: then answers are tried one by one, for fewer buffers at a time.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from .leaving import Leaving
from .region_times import Bools, Floats, Ints, added

_ROUNDS = 300
_ROUND_WORK = 30_000_000
_TRIALS = 30
_TRIAL_WORK = 1_000_000
_AT_ONCE = 128
_NOTHING = 1e-15  # seconds


def who_leaves(question: Leaving, start: Bools) -> Bools:
    """Return who leaves; `start` is an answer to begin with.

    It is returned as it is where even that leaves too much, or where leaving costs nothing.
    """
    prices = start_prices(question)
    if (question.over(start) > 0).any() or prices is None:
        return start
    best, least = start, question.seconds(start)
    work = len(question) + len(question.excess) + len(question.times.flow)
    rounds = max(min(_ROUNDS, _ROUND_WORK // work), 30)
    every = -(-rounds // max(min(_TRIALS, _TRIAL_WORK // work), 3))
    for number in range(rounds):
        if number % every == 0:
            tried = settled(question, prices.away)
            if (seconds := question.seconds(tried)) < least:
                best, least = tried, seconds
        if not prices.step(least):
            break
    best = best_of_few(question, best, prices).copy()
    _bring_back(question, best)
    return best


def settled(question: Leaving, away: Bools) -> Bools:
    """Return an answer that fits, from one that need not: more leave, then some come back."""
    away = away.copy()
    _send_away(question, away)
    _bring_back(question, away)
    return away


def _send_away(question: Leaving, away: Bools) -> None:
    """Let those leave that cost least for each byte of room that is needed."""
    while (over := question.over(away)).max(initial=0) > 0:
        relief = _relief(question, over)
        cost = np.maximum(question.changes(away), 0.0)
        helps = ~away & (relief > 0)
        price = np.where(helps, cost / np.maximum(relief, 1), np.inf)
        chosen = _first(question, price)
        if not len(chosen):
            return
        for index in chosen.tolist():
            here = over[question.low[index] : question.high[index]]
            if here.max() > 0:
                away[index] = True
                here -= question.sizes[index]


def _bring_back(question: Leaving, away: Bools) -> None:
    """Let those come back that fit and are no cheaper away, the most expensive first."""
    while away.any():
        over, change = question.over(away), question.changes(away)
        fits = away & (change < _NOTHING) & (question.most_over(over) + question.sizes <= 0)
        chosen = _first(question, np.where(fits, change, np.inf))
        if not len(chosen):
            return
        for index in chosen.tolist():
            here = over[question.low[index] : question.high[index]]
            if here.max() + question.sizes[index] <= 0:
                away[index] = False
                here += question.sizes[index]


def _relief(question: Leaving, over: Ints) -> Floats:
    """Return by how much less would be too much without each, over all moments together.

    That is a bound where it is larger than what is too much at some of them, but not at others.
    """
    excess = np.maximum(over, 0)
    amount = np.append(0, np.cumsum(excess))
    count = np.append(0, np.cumsum(excess > 0))
    moments = count[question.high] - count[question.low]
    missing = amount[question.high] - amount[question.low]
    relief: Floats = np.minimum(question.sizes * moments, missing).astype(np.float64)
    return relief


def _first(question: Leaving, price: Floats) -> Ints:
    """Return those with the lowest finite prices: one, and several at once of very many."""
    count = 1 + len(question) // _AT_ONCE
    lowest = np.argsort(price, kind="stable")[:count]
    return lowest[np.isfinite(price[lowest])]


_PATIENCE = 15
_SHORTEST_STEP = 1e-4


class Prices:
    """Prices while they are improved.

    `bound` is the largest L so far, `reduced` the costs there; `away` are those that had better
    leave at the prices of the last step.
    """

    def __init__(self, question: Leaving, extra: Floats, edges: Ints, owner: Ints) -> None:
        """`extra` is what each of `edges` takes longer in the far region, `owner` its buffer."""
        times = question.times
        moving = times.linear(question.homes)
        self._question = question
        self._extra, self._owner, self._flow = extra, owner, times.flow[edges]
        self._floor, self._moving = times.floor, moving
        self._hides = times.floor > moving
        self._fixed = times.fixed
        sizes = question.sizes.astype(np.float64)
        moments = (question.high - question.low).astype(np.float64)
        self._scale = _sum(extra) / _sum(sizes * moments)
        self._room = np.ones(len(question.excess))
        self._hidden = np.where(self._hides, 0.5, 1.0)
        self._best = self._room, self._hidden
        self._length, self._waited = 1.0, 0
        self.bound = -np.inf
        self.reduced = np.zeros(len(question))
        self.away: Bools = np.zeros(len(question), dtype=bool)

    def extra_of(self, index: int) -> tuple[Ints, Floats]:
        """Return the flows that move a buffer, each once, and what they take longer for it."""
        own = self._owner == index
        return self._flow[own], self._extra[own]

    def step(self, upper: float) -> bool:
        """Look at L, and make one step; tell whether more of them make sense.

        `upper` are the seconds of the best answer so far.
        """
        question = self._question
        room, hidden = self._room, self._hidden
        worth = np.append(0.0, np.cumsum(self._scale * room))
        own = added(self._owner, hidden[self._flow] * self._extra, len(question))
        reduced = own - question.sizes * (worth[question.high] - worth[question.low])
        away = reduced < 0
        value = (
            self._fixed
            + _sum((1 - hidden) * self._floor + hidden * self._moving)
            + _sum(self._scale * room * question.excess)
            + _sum(np.minimum(reduced, 0.0))
        )
        self.away = away
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
        """Step along the subgradient, as far as the gap to an answer allows."""
        question, away = self._question, self.away
        towards_room = self._scale * question.over(away)
        leaving = added(self._flow, self._extra * away[self._owner], len(self._floor))
        towards_hidden = np.where(self._hides, self._moving + leaving - self._floor, 0.0)
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


def start_prices(question: Leaving) -> Prices | None:
    """Return prices to start from; None where leaving costs nothing, or nobody knows what."""
    times = question.times
    near, far = times.rates[question.near], times.rates[question.far]
    if near is None or far is None or far >= near or not len(question):
        return None
    position = np.full(len(times.names), -1, dtype=np.int64)
    position[question.buffers] = np.arange(len(question))
    edges = np.flatnonzero(position[times.buffer] >= 0)
    extra = times.nbytes[edges] * (1 / far - 1 / near)
    if not extra.any():
        return None
    return Prices(question, extra, edges, position[times.buffer[edges]])


def _sum(numbers: Floats) -> float:
    """Return the sum, added up in order, as every machine does it."""
    return float(np.cumsum(numbers)[-1]) if len(numbers) else 0.0


_FEW = 40
_STREAMS = 60  # buffers that are tried where streams limit flows
_WINDOW = 10  # so many of them at a time
_NODES = 20_000
_EQUAL = 1e-12


def best_of_few(question: Leaving, away: Bools, prices: Prices) -> Bools:
    """Return the best answer found that differs from `away` in a few buffers alone.

    Those are the ones about whom prices say least.
    """
    order = np.argsort(np.abs(prices.reduced), kind="stable")
    if question.times.stream is None:
        return _Branches(question, away, prices, order[:_FEW]).run()
    for first in range(0, min(len(order), _STREAMS), _WINDOW // 2):
        away = _best_of_all(question, away, order[first : first + _WINDOW])
    return away


def _best_of_all(question: Leaving, away: Bools, few: Ints) -> Bools:
    """Return the best answer that differs in a few buffers, each looked at."""
    best, least = away, question.seconds(away)
    for ways in product((False, True), repeat=len(few)):
        tried = away.copy()
        tried[few] = ways
        if (question.over(tried) <= 0).all() and (seconds := question.seconds(tried)) < least:
            best, least = tried, seconds
    return best


class _Branches:
    """One search; `best` is the best answer so far."""

    def __init__(self, question: Leaving, away: Bools, prices: Prices, few: Ints) -> None:
        certain = np.abs(prices.reduced)
        # What goes against high prices comes first: it is seen to be wrong at once.
        order = few[::-1]
        stay, gone = away.copy(), away.copy()
        stay[order], gone[order] = False, True
        against = away != (prices.reduced < 0)
        against[order] = False
        self.best = away
        self._least = question.seconds(away)
        self._question = question
        self._order = order.tolist()
        self._away = stay
        self._over, self._over_at_least = question.over(stay), question.over(gone)
        self._certain, self._prefers = certain, prices.reduced < 0
        self._bound = prices.bound + float(np.cumsum(np.append(0.0, certain[against]))[-1])
        self._floor = question.times.floor
        self._moving = question.times.linear(question.homes_of(stay))
        self._extra = {index: prices.extra_of(index) for index in self._order}
        self._nodes = _NODES

    def run(self) -> Bools:
        """Return the best answer."""
        if (self._over_at_least <= 0).all():
            self._go(0, self._bound, self._question.seconds(self._away))
        return self.best

    def _go(self, level: int, bound: float, seconds: float) -> None:
        """Try both ways for the buffer of this level; those of later levels have not left so far.

        `bound` is what prices say of all answers from here on, `seconds` what those take who left.
        """
        self._nodes -= 1
        if self._nodes < 0 or max(bound, seconds) >= self._least * (1 - _EQUAL):
            return
        if self._over.max() <= 0:
            self.best, self._least = self._away.copy(), seconds
            return
        index = self._order[level]
        prefers = bool(self._prefers[index])
        for leaves in (prefers, not prefers):
            after = bound + (0.0 if leaves == prefers else float(self._certain[index]))
            if leaves:
                self._leave(index, level, after, seconds)
            else:
                self._stay(index, level, after, seconds)

    def _leave(self, index: int, level: int, bound: float, seconds: float) -> None:
        span = slice(self._question.low[index], self._question.high[index])
        size = self._question.sizes[index]
        flow, extra = self._extra[index]
        before = self._moving[flow]
        more = np.maximum(self._floor[flow], before + extra)
        more -= np.maximum(self._floor[flow], before)
        self._moving[flow] = before + extra
        self._over[span] -= size
        self._away[index] = True
        self._go(level + 1, bound, seconds + float(np.cumsum(more)[-1]) if len(more) else seconds)
        self._away[index] = False
        self._over[span] += size
        self._moving[flow] = before

    def _stay(self, index: int, level: int, bound: float, seconds: float) -> None:
        span = slice(self._question.low[index], self._question.high[index])
        size = self._question.sizes[index]
        self._over_at_least[span] += size
        if self._over_at_least[span].max() <= 0:
            self._go(level + 1, bound, seconds)
        self._over_at_least[span] -= size
