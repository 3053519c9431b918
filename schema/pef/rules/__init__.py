"""What makes a program right, beyond being stored right: one module per kind of rule.

A rule is a function from a program to sentences, one per fault. The rules of `references` prove
that every index is in range; all others rely on it and run only where those found nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from pef.program import Program

from . import (
    content,
    descriptive,
    facts,
    memory,
    names,
    programs,
    references,
    schedule,
    shared,
    training,
    variants,
)

Rule = Callable[[Program], Iterator[str]]

# What the runtime relies on to touch only memory that is there and values that are computed.
ESSENTIAL: tuple[Rule, ...] = (
    *names.RULES,
    *memory.RULES,
    *schedule.RULES,
    *facts.RULES,
    *training.RULES,
    *shared.RULES,
    *variants.RULES,
)
# What only people and tools read, and what the runtime checks itself when it uses it.
DESCRIPTIVE: tuple[Rule, ...] = (*descriptive.RULES, *content.RULES, *programs.RULES)


def check_program(program: Program) -> list[str]:
    """Every rule a program breaks, as sentences that name the culprit; empty if it is right."""
    return _check(program, (*ESSENTIAL, *DESCRIPTIVE))


def check_references(program: Program) -> list[str]:
    """Return which indices lead nowhere; whatever follows one relies on it that none does."""
    return list(_apply(references.RULES, program))


def check_essential(program: Program) -> list[str]:
    """As `check_program`, but only what running relies on; done whenever a PEF is opened."""
    return _check(program, ESSENTIAL)


def check_descriptive(program: Program) -> list[str]:
    """The rest, for a program that `check_essential` has found right."""
    return list(_apply(DESCRIPTIVE, program))


def _check(program: Program, rules: Iterable[Rule]) -> list[str]:
    return check_references(program) or list(_apply(rules, program))


def _apply(rules: Iterable[Rule], program: Program) -> Iterator[str]:
    return chain.from_iterable(rule(program) for rule in rules)
