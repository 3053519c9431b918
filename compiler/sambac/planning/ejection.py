"""Lowers the peak of a plan of addresses by ejection search.

To get below a ceiling, every span that reaches above it is taken out and put back where it
displaces the least; what it displaces is taken out in turn, until nothing is left over or too
much work is done. A span counts for more each time it had to displace others, so that the search
does not go round in circles. The ceiling then moves halfway to the lower bound, or up again.

Work is counted, not timed, and all arithmetic is on integers or single roundings, so that the
result is the same on every host.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import numpy as np

from .pressure import Ints, Neighbours, Spans

# Work is counted in neighbours looked at, and a step costs some more beside; an average step
# takes some 50 microseconds. A whole search may take 100 steps for each of a few hundred spans
# and 4 for each of many; an attempt at one ceiling a sixth of that, and at least 2 for each.
_STEP_WORK = 200
_AVERAGE_STEP_WORK = 400
_SEARCH_STEPS = 24_000

# No ceiling closer to the peak than this share of what lies between the bound and the peak.
_SMALLEST_GAIN = 0.05

_DIFFICULTY_SCALE = 1_000


@dataclass(frozen=True)
class _Attempt:
    """What came of one attempt: the addresses, or None if it was given up, and the work done."""

    addresses: Ints | None
    work: int


@dataclass(frozen=True)
class _Task:
    """The spans, who lives with whom, and how hard each is to find a place for."""

    spans: Spans
    neighbours: Neighbours
    difficulty: Ints


def lower_peak(spans: Spans, neighbours: Neighbours, addresses: Ints, bound: int) -> Ints:
    """Return addresses with a lower peak than the given ones, or these if none is found.

    The search ends at a peak of `bound`, the largest sum of live bytes.
    """
    task = _Task(spans, neighbours, _difficulty(spans))
    grain = int(np.gcd.reduce(spans.sizes))
    count = len(spans)
    steps = max(min(100 * count, _SEARCH_STEPS), 4 * count)
    work = _AVERAGE_STEP_WORK * steps
    attempt_work = _AVERAGE_STEP_WORK * max(steps // 6, 2 * count)
    peak = int((addresses + spans.sizes).max(initial=0))
    share, newest_first = 0.5, True
    while peak > bound and work > 0 and share < 1 - _SMALLEST_GAIN:
        ceiling = bound + int((peak - bound) * share) // grain * grain
        limit = min(work, attempt_work)
        attempt = _attempt(task, addresses, ceiling, limit, newest_first=newest_first)
        work -= attempt.work
        if attempt.addresses is not None:
            addresses = attempt.addresses
            peak = int((addresses + spans.sizes).max(initial=0))
            share = 0.5
        elif newest_first:
            newest_first = False
        else:
            share, newest_first = (1 + share) / 2, True
    return addresses


def _difficulty(spans: Spans) -> Ints:
    """Grade the spans by the root of size times length, the hardest with the scale's end."""
    area = spans.sizes.astype(np.float64) * (spans.last - spans.first + 1)
    grade: Ints = (np.sqrt(area / area.max()) * _DIFFICULTY_SCALE).astype(np.int64)
    return np.maximum(grade, np.int64(1))


def _attempt(
    task: _Task, addresses: Ints, ceiling: int, limit: int, *, newest_first: bool
) -> _Attempt:
    """Try to bring every span below `ceiling` with at most `limit` of work.

    Displaced spans are put back the last one first (which repairs one place at a time: good for
    many spans) or the first one first (which gives every span its turn: good for few).
    """
    addresses = addresses.copy()
    weights = task.difficulty.copy()
    dice = random.Random(0)
    over = np.flatnonzero(addresses + task.spans.sizes > ceiling)
    waiting = deque(over[np.argsort(task.difficulty[over], kind="stable")].tolist())
    addresses[over] = -1
    work = 0
    while waiting:
        if work >= limit:
            return _Attempt(None, work)
        index = waiting.pop() if newest_first else waiting.popleft()
        others = task.neighbours.of(index)
        work += _STEP_WORK + len(others)
        others = others[addresses[others] >= 0]
        begins = addresses[others]
        ends = begins + task.spans.sizes[others]
        size = int(task.spans.sizes[index])
        address = _cheapest(begins, ends, weights[others], (size, ceiling), dice)
        displaced = others[(begins < address + size) & (ends > address)]
        if len(displaced):
            weights[index] += task.difficulty[index]
            addresses[displaced] = -1
            waiting.extend(displaced.tolist())
        addresses[index] = address
    return _Attempt(addresses, work)


def _cheapest(
    begins: Ints, ends: Ints, weights: Ints, room: tuple[int, int], dice: random.Random
) -> int:
    """Return the address below which to displace the smallest sum of weights.

    `begins` and `ends` are the addresses of the placed neighbours; `room` is the size to place
    and the ceiling. Only addresses that touch a neighbour, the bottom or the ceiling come into
    question. Of free ones the lowest is taken, of others a random one.
    """
    size, ceiling = room
    choices = np.concatenate((ends, begins - size, np.array([0, ceiling - size], dtype=np.int64)))
    choices = choices[(choices >= 0) & (choices <= ceiling - size)]
    # Displaced are those that begin below the end of the choice less those that end before it.
    # In which order equal ones come makes no difference to the sums up to them.
    by_begin, by_end = begins.argsort(), ends.argsort()
    below = _running_sum(weights[by_begin])[begins[by_begin].searchsorted(choices + size)]
    before = _running_sum(weights[by_end])[ends[by_end].searchsorted(choices, side="right")]
    cost = below - before
    lowest = int(cost.min())
    cheapest = choices[cost == lowest]
    if lowest == 0:
        return int(cheapest.min())
    return int(cheapest[int(dice.random() * len(cheapest))])


def _running_sum(weights: Ints) -> Ints:
    """Return the sums of the first 0, 1, 2, ... weights."""
    sums = np.zeros(len(weights) + 1, dtype=np.int64)
    weights.cumsum(out=sums[1:])
    return sums
