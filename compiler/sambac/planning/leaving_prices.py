"""Prices of room: what a byte is worth at each moment, and what hiding behind work is worth.

    L(p, q) = sum over flows of (1 - q) floor + q moving
            + sum over moments of p excess + sum over buffers of min(0, reduced)
    reduced = sum over flows of q (what it takes longer in the far region) - size * sum of its p

This is the Lagrangian of `Leaving` without its whole numbers (Geoffrion, 1974), for prices p of at
least 0 and q between 0 and 1. No answer takes less than L, whatever the prices; a buffer whose
reduced cost is below zero had better leave at these. Steps along subgradients (Held, Wolfe and
Crowder, 1974) make L large.
"""

from __future__ import annotations

import numpy as np

from .leaving import Leaving
from .region_times import Bools, Floats, Ints, added

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
