"""Which region each buffer goes to, and which buffers leave HBM when it is too small.

The rules: a region the user asked for wins; a device without HBM uses DDR; otherwise everything
goes to HBM. When that does not fit, the buffers with the least traffic spill to DDR first, and
weights after everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pef.program import RegionKind

from .plans import Buffer
from .pressure import Pressure, Spans


def home_region(capacities: Mapping[RegionKind, int]) -> RegionKind:
    """Return where buffers go unless the user says otherwise: HBM where there is any, else DDR."""
    return RegionKind.HBM if capacities.get(RegionKind.HBM, 0) > 0 else RegionKind.DDR


def choose_spills(
    buffers: Sequence[Buffer], sizes: Sequence[int], candidates: Iterable[int], budget: int
) -> list[int]:
    """Return the candidates to move out so that at most `budget` bytes are alive at once.

    `buffers` share one region, `sizes` are the bytes they take there, `candidates` indices of
    those that may leave. A buffer is chosen only if it is alive while the region is over its
    budget, and no chosen one could stay when all the others leave. All the candidates that help
    are returned where even that is not enough.
    """
    pressure = _pressure(buffers, sizes)
    order = sorted(candidates, key=lambda i: (buffers[i].weight, buffers[i].traffic, -sizes[i], i))
    spilled = []
    for index in order:
        if pressure.peak <= budget:
            break
        if pressure.during(index) > budget:
            pressure.remove(index)
            spilled.append(index)
    return [index for index in reversed(spilled) if not _fits_again(pressure, index, budget)]


def _pressure(buffers: Sequence[Buffer], sizes: Sequence[int]) -> Pressure:
    """Count persistent buffers as alive from the first moment to the last."""
    begin = min((b.first for b in buffers), default=0)
    end = max((b.last for b in buffers), default=0)
    first = [begin if b.persistent else b.first for b in buffers]
    last = [end if b.persistent else b.last for b in buffers]
    return Pressure(Spans.of(list(sizes), first, last))


def _fits_again(pressure: Pressure, index: int, budget: int) -> bool:
    """Tell whether a spilled buffer can come back after all; if so it does."""
    pressure.restore(index)
    if pressure.during(index) <= budget:
        return True
    pressure.remove(index)
    return False
