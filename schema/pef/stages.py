"""The types of sections in a training step: in which order they run, and what they write.

Whoever plans, checks or runs a step asks here, so that a further type has one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .program import SectionType
from .symbols import SymbolKind

_PASSED_ON = frozenset({SymbolKind.ACTIVATION})

WRITES: Mapping[SectionType, frozenset[SymbolKind]] = MappingProxyType({
    SectionType.ZEROGRAD: _PASSED_ON | {SymbolKind.GRADIENT},
    SectionType.FWD: _PASSED_ON | {SymbolKind.OUTPUT, SymbolKind.BUFFER},
    SectionType.BCKWD: _PASSED_ON | {SymbolKind.OUTPUT, SymbolKind.GRADIENT},
    SectionType.REDUCE: frozenset(),
    SectionType.GRADNORM: _PASSED_ON | {SymbolKind.OUTPUT, SymbolKind.GRADIENT},
    SectionType.OPT: _PASSED_ON | {SymbolKind.WEIGHT, SymbolKind.OPT_STATE},
})  # fmt: skip
"""What sections of each type write, in the order of a step.

Activations are what a section hands to others of its type and behind it.
"""

ORDER = tuple(WRITES)
"""A step over several batches runs FWD, BCKWD and what is between them for each of them."""


def before(kind: SectionType) -> tuple[SectionType, ...]:
    """Return the types that run before `kind` in a step."""
    return ORDER[: ORDER.index(kind)]


def behind(kind: SectionType) -> tuple[SectionType, ...]:
    """Return the types that run after `kind` in a step."""
    return ORDER[ORDER.index(kind) + 1 :]
