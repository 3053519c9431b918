"""All answers for a few buffers, the others staying where they are: a search that skips most.

It goes on from buffer to buffer, and leaves a branch where its bound is no less than the best
answer: the seconds of those that have left already, for each that follows costs something, or what
the prices say (`Prices.bound`, and more for each that goes against them). Few enough buffers that
leave the region to be settled are all of them; then what it finds is the best there is.
"""

from __future__ import annotations

import numpy as np

from .leaving import Leaving
from .leaving_prices import Prices
from .region_times import Bools

_FEW = 40
_NODES = 20_000
_EQUAL = 1e-12


def best_of_few(question: Leaving, away: Bools, prices: Prices) -> Bools:
    """Return the best answer that differs from `away` in a few buffers alone.

    Those are the ones about whom prices say least. Where single streams limit flows, the first to
    leave may cost more than those that follow: nothing is tried.
    """
    if question.times.stream is not None:
        return away
    return _Search(question, away, prices).run()


class _Search:
    """One search; `best` is the best answer so far."""

    def __init__(self, question: Leaving, away: Bools, prices: Prices) -> None:
        certain = np.abs(prices.reduced)
        # What goes against high prices comes first: it is seen to be wrong at once.
        order = np.argsort(certain, kind="stable")[:_FEW][::-1]
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
