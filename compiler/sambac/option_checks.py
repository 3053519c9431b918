"""What options of a compilation may not be, beyond their types: problems as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pef.program import RegionKind
from pef.wording import listed

# More chips do not share the work of one operator, and no region's size leaves the file's range.
_MOST_CHIPS = 4096


def wrong_values(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with options, by name; all are of the types that they are to be."""
    chips = given["n_chips"]
    if chips is not None and chips > _MOST_CHIPS:
        yield f"n_chips (--n-chips) is {chips}; choose one from 1 to {_MOST_CHIPS}."
    yield from _wrong_regions(given["memory"])
    whole = given["sections"] is None and given["mapping"] == "section"
    for name in ("section_breaks", "chip_breaks"):
        if given[name] and not whole:
            yield f"{name}: give no number of sections beside it, and the mapping 'section'."
        yield from _wrong_patterns(name, given[name])


def _wrong_regions(memory: Mapping[str, str]) -> Iterator[str]:
    kinds = tuple(kind.name for kind in RegionKind)
    problems = [
        f"memory: '{name}' is to lie in {region!r}"
        for name, region in memory.items()
        if str(region).upper() not in kinds
    ]
    if problems:
        yield f"{listed(problems)}; choose {' or '.join(kinds)}."


def _wrong_patterns(name: str, patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{name}: {pattern!r} is no regular expression: {error}."
