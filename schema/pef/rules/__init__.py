"""What makes a program right, beyond being stored right: one module per kind of rule.

A rule is a function from a program to sentences, one per fault. The rules of `references` prove
that every index is in range; all others rely on it and run only where those found nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from pef.arguments import instance, misfits
from pef.errors import PefError
from pef.program import Program
from pef.states import has_states, is_training

from . import descriptive, facts, memory, references, schedule, training

Rule = Callable[[Program], Iterator[str]]
_PROGRAM = instance(Program, "a pef.Program")


def check_program(program: Program) -> list[str]:
    """Every rule a program breaks, as sentences that name the culprit; empty if it is right.

    Raises `PefError` for what is no program.
    """
    if told := misfits(program=(program, _PROGRAM)):
        raise PefError(told[0])
    return check_references(program) or list(
        _apply((*_essential(program), *descriptive.RULES), program)
    )


def check_references(program: Program) -> list[str]:
    """Return which indices lead nowhere; whatever follows one relies on it that none does."""
    return list(_apply(references.RULES, program))


def check_essential(program: Program) -> list[str]:
    """As `check_program`, but only what running relies on; done whenever a PEF is opened."""
    return check_references(program) or list(_apply(_essential(program), program))


def check_descriptive(program: Program) -> list[str]:
    """The rest, for a program that `check_essential` has found right."""
    return list(_apply(descriptive.RULES, program))


def _essential(program: Program) -> Iterator[Rule]:
    """Yield the rules that keep a run to memory that is there and to values that are computed."""
    yield from (*facts.RULES, *memory.RULES, *schedule.RULES)
    if is_training(program):
        yield from training.OF_TRAINING
    if has_states(program):
        yield from training.OF_STATES


def _apply(rules: Iterable[Rule], program: Program) -> Iterator[str]:
    return chain.from_iterable(rule(program) for rule in rules)
