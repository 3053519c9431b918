"""All answers for a few buffers, the others staying where they are.

The search goes on from buffer to buffer, and leaves a branch where its bound is no less than the
best answer: the seconds of those that have left already, for each that follows costs something, or
what the prices say (`Prices.bound`, and more for each that goes against them). Where no more
buffers than a few are in question, what it finds is the best there is.

Where single streams limit flows, the first to leave may cost more than those that follow, and there
is no such bound: then answers are tried one by one, for fewer buffers at a time.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from .leaving import Leaving
from .leaving_prices import Prices
from .region_times import Bools, Ints

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
