"""Spans whose plans are hard to find, and what each plan of addresses must hold."""

from __future__ import annotations

import random

import numpy as np

from sambac.planning.pressure import Ints, Spans


def apart(spans: Spans, addresses: Ints) -> bool:
    """Return whether no two spans that live at once share an address."""
    ends = addresses + spans.sizes
    meet = (spans.first[:, None] <= spans.last) & (spans.first <= spans.last[:, None])
    overlap = (addresses[:, None] < ends) & (addresses < ends[:, None])
    np.fill_diagonal(meet, val=False)
    return bool((addresses >= 0).all()) and not (meet & overlap).any()


def pinwheels(count: int, seed: int) -> Spans:
    """Cut a rectangle into five that turn around the middle one, and again one of those."""
    dice = random.Random(seed)
    pieces = [(0, 1000, 0, 65536)]
    while len(pieces) < count:
        areas = [
            (e - b) * (top - low) if min(e - b, top - low) >= 4 else 0 for b, e, low, top in pieces
        ]
        begin, end, low, top = pieces.pop(dice.choices(range(len(pieces)), areas)[0])
        x1, x2 = sorted(dice.sample(range(begin + 1, end), 2))
        y1, y2 = sorted(dice.sample(range(low + 1, top), 2))
        pieces += [(begin, x2, low, y1), (x2, end, low, y2), (x1, end, y2, top)]
        pieces += [(begin, x1, y1, top), (x1, x2, y1, y2)]
    dice.shuffle(pieces)
    begins, ends, lows, tops = zip(*pieces, strict=True)
    sizes = [top - low for low, top in zip(lows, tops, strict=True)]
    return Spans.of(sizes, list(begins), [end - 1 for end in ends])
