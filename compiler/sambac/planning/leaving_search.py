"""Who leaves a region that is too small, so that a run takes as little time as can be found.

The answer starts from the policy's: what moves the fewest bytes leaves first, weights last. Others
are made greedily, from what the prices of room say and from nothing, and the best is improved by
trying all answers for those about whom prices say least. The best of all is taken, so it is never
worse than the policy's. Work is counted, not timed: equal input gives equal answers on every host.
"""

from __future__ import annotations

import numpy as np

from .leaving import Leaving
from .leaving_exact import best_of_few
from .leaving_prices import start_prices
from .region_times import Bools, Floats, Ints

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
