"""The sweep that looks for overlapping addresses finds what comparing all pairs finds."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

import pef
from pef.rules.memory import overlaps

CALLS = 8
SPAN = st.tuples(st.integers(-1, CALLS), st.integers(-1, CALLS)).map(sorted)
HOME = st.tuples(
    st.sampled_from((pef.RegionKind.HBM, pef.RegionKind.DDR)),
    st.integers(0, 20),
    st.integers(0, 6),
    st.lists(SPAN, min_size=1, max_size=3),
)
Home = tuple[pef.RegionKind, int, int, list[list[int]]]


def collide(one: Home, other: Home) -> bool:
    (region, start, size, spans), (region2, start2, size2, spans2) = one, other
    meet = any(a[0] <= b[1] and b[0] <= a[1] for a in spans for b in spans2)
    apart = start + size <= start2 or start2 + size2 <= start or not size or not size2
    return region == region2 and meet and not apart


@given(st.lists(HOME, max_size=8))
def test_the_sweep_finds_what_all_pairs_show(homes: list[Home]) -> None:
    program = pef.Program(
        producer=pef.Producer("test", "1", "{}"),
        requires=pef.Requirements(),
        arch="sn40l",
        regions=(),
        allocations=tuple(pef.Allocation(region, start, size) for region, start, size, _ in homes),
        symbols=tuple(
            pef.Symbol(f"{i}.{j}", pef.SymbolKind.BUFFER, 2, (1,), "", i, 0, 1, first, last)
            for i, (_, _, _, spans) in enumerate(homes)
            for j, (first, last) in enumerate(spans)
        ),
        programs=(),
        sections=(),
        schedule=(0,) * CALLS,
        graphs=(),
        segments=(),
    )
    expected = any(collide(one, other) for one, other in combinations(homes, 2))
    assert bool(list(overlaps(program))) == expected
