"""What the name of a thing in a program means: a graph, a section, an operator, a symbol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pef.errors import PefError
from pef.graphs import AmbiguousNameError, symbol_names
from pef.program import Program
from pef.text import plural
from pef.wording import did_you_mean, listed

from .operators import OperatorPlace
from .written import called_after, written_as

KINDS = ("graph", "section", "operator", "symbol")


@dataclass(frozen=True)
class Subject:
    """A thing of a program: `at` is its number (of a graph, section, symbol), or a place."""

    kind: str
    name: str
    at: int | OperatorPlace


def find(program: Program, spelled: str) -> tuple[Subject, ...]:
    """Return what a name means: `section:NAME` and the like one kind alone.

    A section may be named by its number, a symbol as the runtime takes it: by its name after that
    of a graph, by a public one. Raises `PefError` for a name that means nothing, or several things
    of which none is a part of another; for one that is written as other operators it says which.
    """
    kind, _, name = spelled.partition(":")
    found = _meant(program, name, kind) if kind in KINDS else ()
    found = found or _meant(program, spelled)
    if not found:
        wanted = name if kind in KINDS else spelled
        after = called_after(program, wanted)
        if written := written_as(program, wanted):
            raise PefError(f"{written}{after}.")
        hint = (
            after
            or did_you_mean(spelled, _known(program))
            or (
                f"; it has {plural(len(program.sections), 'section')}, such as "
                f"{listed([repr(section.name) for section in program.sections], 3, ', ')}"
            )
        )
        raise PefError(f"there is no graph, section, operator or symbol {spelled!r}{hint}.")
    if len(found) > 1 and not _is_nested(found):
        wanted = " or ".join(f"{each.kind}:{each.name}" for each in found)
        raise PefError(f"{spelled!r} means several things; did you mean {wanted}?")
    return found


def _meant(program: Program, name: str, kind: str = "") -> tuple[Subject, ...]:
    """Return what `name` means: a thing of each kind, or of `kind` alone."""
    called: dict[str, Subject] = {}
    for word, subject in _parts(program):
        if word == name and kind in ("", subject.kind):
            called.setdefault(subject.kind, subject)
    if kind in ("", "symbol") and (symbol := _symbol(program, name, exactly=bool(kind))):
        called["symbol"] = symbol
    return tuple(called[each] for each in KINDS if each in called)


def _symbol(program: Program, name: str, *, exactly: bool) -> Subject | None:
    """Return the symbol that `name` means; what is `exactly` called so comes first, if wanted."""
    own = (at for at, symbol in enumerate(program.symbols) if symbol.name == name)
    at = next(own, None) if exactly else None
    if at is None:
        try:
            at = next(iter(symbol_names(program).find(name)), None)
        except AmbiguousNameError as error:
            raise PefError(f"{error}, or ask for symbol: and a name of `sambac inspect`.") from None
    return None if at is None else Subject("symbol", program.symbols[at].name, at)


def _is_nested(found: tuple[Subject, ...]) -> bool:
    """Tell whether these are an operator and the section of its name that it is in."""
    by_kind = {each.kind: each.at for each in found}
    operator = by_kind.get("operator")
    return (
        by_kind.keys() == {"section", "operator"}
        and isinstance(operator, OperatorPlace)
        and operator.section == by_kind["section"]
    )


def _parts(program: Program) -> Iterator[tuple[str, Subject]]:
    """Yield all but the symbols, with what they may be called."""
    for number, graph in enumerate(program.graphs):
        yield graph.name, Subject("graph", graph.name, number)
    for number, section in enumerate(program.sections):
        yield section.name, Subject("section", section.name, number)
        for group in section.groups:
            for operator in group.operators:
                place = OperatorPlace(number, group, operator)
                yield operator.name, Subject("operator", operator.name, place)
    for number, section in enumerate(program.sections):
        yield str(number), Subject("section", section.name, number)


def _known(program: Program) -> Iterator[str]:
    """Yield all names that mean something."""
    yield from (word for word, _ in _parts(program))
    yield from symbol_names(program).known
