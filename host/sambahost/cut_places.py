"""Which piece each operator of a model is in that is cut at some of them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

from pef.warned import warn

Item = TypeVar("Item", bound=Hashable)


def places_of(
    reads: Mapping[Item, Iterable[Item]], starts: Mapping[Item, int], operators: Collection[Item]
) -> dict[Item, int]:
    """Return which piece each item is in: that of its start, or of what it `reads`, if later.

    Items stand behind what they read. A piece without `operators` is none: what is in it goes to
    the first piece or to the last.
    """
    found: dict[Item, int] = {}
    for item, sources in reads.items():
        before = (found.get(each, 0) for each in sources)
        found[item] = max(starts.get(item, 0), *before, 0)
    used = sorted({found[item] for item in operators})
    last = len(used) - 1
    return {item: used.index(n) if n in used else last * (n > 0) for item, n in found.items()}


def led_by(places: Mapping[Item, int], differentiable: Iterable[int]) -> dict[Item, int]:
    """Return `places` whose first piece is the first of `differentiable`: it takes in those before.

    They have nothing to train, and nothing to give a gradient of; a warning says so.
    """
    first = min(differentiable, default=0)
    if first:
        warn(
            "nothing in front of a chip break could have a gradient, so that nothing would be "
            "trained there: it is computed on the chip behind"
        )
    return {item: max(place - first, 0) for item, place in places.items()}
