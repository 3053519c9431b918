"""States that a checkpoint may lack: what no step reads while an argin is zero.

A program whose argins choose (`pef.states.ARGIN_VARIANTS`) keeps momentum that may be zero in all
runs. The program of another version, which left the term out when it was compiled with zero, wrote
checkpoints without it: the momentum was 0, and its buffers are as before the first step.
"""

from __future__ import annotations

from collections.abc import Iterator

import pef
from pef.program import Section
from pef.states import States


def may_be_missing(program: pef.Program, states: States, missing: frozenset[int]) -> frozenset[int]:
    """Return the symbols among `missing` that may be zeros instead.

    Argins that some update can do without when they are zero, and what no section reads if the
    missing ones of them are.
    """
    zeros = {s for section in program.sections for v in section.variants for s in v.zeros}
    argins = frozenset(zeros & missing)
    packs = states.packs.items()
    homes = {part: frozenset({part, flat}) for flat, parts in packs for part in parts}
    unread = {
        symbol
        for symbol in missing
        if program.symbols[symbol].kind is pef.SymbolKind.OPT_STATE
        and _is_unread(program, homes.get(symbol, frozenset({symbol})), argins)
    }
    return argins | unread


def _is_unread(program: pef.Program, homes: frozenset[int], argins: frozenset[int]) -> bool:
    """Tell whether every section that binds one of `homes` does without while `argins` are zero."""
    binding = [section for section in program.sections if not homes.isdisjoint(section.inputs)]
    return bool(binding) and all(
        any(_lacks(program, section, each, homes) for each in _at_zero(section, argins))
        for section in binding
    )


def _at_zero(section: Section, argins: frozenset[int]) -> Iterator[int]:
    """Yield the programs of `section` that run when `argins` are zero, but not always."""
    for variant in section.variants:
        if variant.zeros and argins.issuperset(variant.zeros):
            yield variant.program


def _lacks(program: pef.Program, section: Section, number: int, homes: frozenset[int]) -> bool:
    formal = program.programs[number].inputs
    return not any(
        name and symbol in homes for symbol, name in zip(section.inputs, formal, strict=True)
    )
