"""What the name of a thing in a program means: a section, an operator, a symbol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pef.errors import PefError
from pef.program import Program
from pef.text import plural
from pef.wording import did_you_mean, listed

from .operators import OperatorPlace

KINDS = ("section", "operator", "symbol")


@dataclass(frozen=True)
class Subject:
    """A thing of a program: `at` is the number of a section or a symbol, or an operator's place."""

    kind: str
    name: str
    at: int | OperatorPlace


def find(program: Program, spelled: str) -> tuple[Subject, ...]:
    """Return what a name means: `section:NAME` and the like one kind alone.

    A section may be named by its number. Raises `PefError` for a name that means nothing, or
    several things of which none is a part of another.
    """
    known = list(_all(program))
    kind, colon, name = spelled.partition(":")
    exact = []
    if colon and kind in KINDS:
        exact = [each for each in known if each[1].kind == kind and each[0] == name]
    if not exact:
        exact = [each for each in known if each[0] == spelled]
    by_kind = {subject.kind: subject for _, subject in reversed(exact)}
    found = tuple(by_kind[each] for each in KINDS if each in by_kind)
    if not found:
        words = [word for word, _ in known]
        hint = did_you_mean(spelled, words) or (
            f"; it has {plural(len(program.sections), 'section')}, such as "
            f"{listed([repr(section.name) for section in program.sections], 3, ', ')}"
        )
        raise PefError(f"there is no section, operator or symbol {spelled!r}{hint}.")
    if len(found) > 1 and not _is_nested(found):
        wanted = " or ".join(f"{each.kind}:{each.name}" for each in found)
        raise PefError(f"{spelled!r} means several things; did you mean {wanted}?")
    return found


def _is_nested(found: tuple[Subject, ...]) -> bool:
    """Tell whether these are an operator and the section of its name that it is in."""
    by_kind = {each.kind: each.at for each in found}
    operator = by_kind.get("operator")
    return (
        by_kind.keys() == {"section", "operator"}
        and isinstance(operator, OperatorPlace)
        and operator.section == by_kind["section"]
    )


def _all(program: Program) -> Iterator[tuple[str, Subject]]:
    for number, section in enumerate(program.sections):
        subject = Subject("section", section.name, number)
        yield section.name, subject
        for group in section.groups:
            for operator in group.operators:
                place = OperatorPlace(number, group, operator)
                yield operator.name, Subject("operator", operator.name, place)
    for at, symbol in enumerate(program.symbols):
        yield symbol.name, Subject("symbol", symbol.name, at)
    for alias in program.aliases:
        yield alias.name, _symbol(program, alias.symbol)
    for graph in program.graphs:
        for port in (*graph.inputs, *graph.outputs):
            yield port.name, _symbol(program, port.symbol)
            yield f"{graph.name}.{port.name}", _symbol(program, port.symbol)
    for number, section in enumerate(program.sections):
        yield str(number), Subject("section", section.name, number)


def _symbol(program: Program, at: int) -> Subject:
    return Subject("symbol", program.symbols[at].name, at)
