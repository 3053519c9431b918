"""Whatever of a program changes, `differences` says so: every field is changed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pef_formats import format_0_1, format_0_2
from pef_formats_regions import format_0_2_shared_regions
from pef_formats_stated import format_0_6

import pef
from pef.report import render, report
from pef.report.diff import Difference, compare, differences, facts

# What stands for a part of a program: the fields and positions that lead there.
Way = tuple[str | int, ...]

# Pieces are the bytes that references lead to: a change of those shows as content.
BYTES = {("Piece", "offset"), ("Piece", "data"), ("Segment", "pieces")}


def ways(value: object, way: Way = ()) -> Iterator[tuple[type, str, Way]]:
    """Yield each field of each dataclass in `value`, once, with the way to the first one."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            inner = getattr(value, field.name)
            yield type(value), field.name, (*way, field.name)
            yield from ways(inner, (*way, field.name))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from ways(item, (*way, number))


def at(value: Any, way: Way) -> Any:
    for step in way:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return value


def put(value: Any, way: Way, new: object) -> Any:
    """Return `value` with `new` at the end of `way`."""
    if not way:
        return new
    step, rest = way[0], way[1:]
    if isinstance(step, str):
        return replace(value, **{step: put(getattr(value, step), rest, new)})
    return (*value[:step], put(value[step], rest, new), *value[step + 1 :])


def others(value: object) -> Iterator[object]:
    """Yield values that `value` might have been instead."""
    match value:
        case IntEnum():
            yield from (member for member in type(value) if member is not value)
        case int():
            yield from (value - 1, value + 1, 0)
        case float():
            yield value + 1
        case str():
            yield '{"another":1}' if value.startswith("{") else value + "x"
        case tuple():
            yield from (value[1:], (*value, *value[:1]), (1,))
        case pef.DataRef():
            yield replace(value, size=value.size - 1)
        case None:
            yield from (0, pef.DataRef(0, 0, 1))
        case _ if is_dataclass(value):
            return
        case _:
            raise TypeError(type(value).__name__)


def told(a: pef.Program, b: pef.Program) -> list[Difference]:
    def content(program: pef.Program) -> Any:
        return lambda ref: program.segments[ref.segment].content(ref)

    return list(compare(facts(a, content(a)), facts(b, content(b))))


PROGRAMS = {
    name: make()
    for name, make in {
        "small": format_0_1,
        "training": format_0_2,
        "regions": format_0_2_shared_regions,
        "timed": format_0_6,
    }.items()
}
LEAVES = {
    f"{program}-{cls.__name__}.{name}": (program, way)
    for program in reversed(PROGRAMS)
    for cls, name, way in reversed([*ways(PROGRAMS[program])])
    if (cls.__name__, name) not in BYTES
}


T = TypeVar("T")


def changes(
    program: pef.Program, way: Way, look: Callable[[pef.Program, pef.Program], T]
) -> Iterator[tuple[object, T]]:
    """Yield other values at `way`, and what `look` says of the program that has one."""
    for other in others(at(program, way)):
        if other == at(program, way):
            continue
        try:
            found = look(program, put(program, way, other))
        except (IndexError, KeyError, TypeError, AttributeError, ValueError):
            continue  # no program: the reader refuses such an index, the types such a value
        yield other, found


def is_nested(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, pef.DataRef)


def test_every_field_of_the_format_is_changed() -> None:
    """The programs hold a row of every table, so that no field is missing below."""
    changed = {leaf.split("-")[1].split(".")[0] for leaf in LEAVES}
    rows = {name for name in pef.__all__ if is_dataclass(getattr(pef, name))}
    assert rows - changed == {"Piece"}


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_change_of_any_field_is_told(leaf: str) -> None:
    """Some value in place of each field's is read and differs: indices have to stay in range."""
    program, way = PROGRAMS[LEAVES[leaf][0]], LEAVES[leaf][1]
    tried = 0
    for other, found in changes(program, way, told):
        tried += 1
        assert found, f"{way}: {at(program, way)!r} -> {other!r}"
        assert found[0].part in {field.name for field in fields(pef.Program)}
    assert tried or is_nested(at(program, way)), "nothing could be changed"


# What else says the same: an element type is that of the spelt type.
SAID_OTHERWISE = {"Symbol.dtype"}


FIELDS = {leaf.partition("-")[2] for leaf in LEAVES} - SAID_OTHERWISE


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_change_of_any_field_is_seen_in_the_log(name: str) -> None:
    """Some value in place of some row's shows in the report, and in the text made of it."""

    def seen(a: pef.Program, b: pef.Program) -> bool:
        one, other = report(a), report(b)
        return one != other and [*render(one)] != [*render(other)]

    places = [
        (program, way)
        for program in PROGRAMS.values()
        for cls, field, way in ways(program)
        if f"{cls.__name__}.{field}" == name
    ]
    assert any(differs for place in places for _, differs in changes(*place, seen)) or all(
        is_nested(at(*place)) for place in places
    )


def test_equal_programs_do_not_differ() -> None:
    for program in PROGRAMS.values():
        assert not told(program, replace(program))


def test_a_row_that_moved_is_no_change() -> None:
    """Symbols are known by name: one more in front shifts all numbers, and is all that is told."""
    program = format_0_1()
    first = pef.Symbol("new", pef.SymbolKind.CONSTANT, 1, (), "tensor(float)")

    def moved(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(index + 1 for index in indices)

    shifted = replace(
        program,
        symbols=(first, *program.symbols),
        sections=tuple(
            replace(s, **{way: moved(getattr(s, way)) for way in ("inputs", "weights", "outputs")})
            for s in program.sections
        ),
        graphs=tuple(
            replace(
                graph,
                inputs=tuple(replace(p, symbol=p.symbol + 1) for p in graph.inputs),
                outputs=tuple(replace(p, symbol=p.symbol + 1) for p in graph.outputs),
            )
            for graph in program.graphs
        ),
        argins=tuple(replace(a, symbol=a.symbol + 1) for a in program.argins),
        aliases=tuple(replace(a, symbol=a.symbol + 1) for a in program.aliases),
        host_kernels=tuple(
            replace(k, inputs=moved(k.inputs), outputs=moved(k.outputs))
            for k in program.host_kernels
        ),
    )
    assert told(program, shifted) == [Difference("symbols", "new", "", None, "present")]


def test_another_order_of_graphs_is_told() -> None:
    """The first graph is what runs, unless another is named."""
    for program in PROGRAMS.values():
        names = [graph.name for graph in program.graphs]
        found = told(program, replace(program, graphs=program.graphs[::-1]))
        turned = [Difference("graphs", "", "order", names, names[::-1])]
        assert found == (turned if len(names) > 1 else [])
    assert any(len(program.graphs) > 1 for program in PROGRAMS.values())


def test_a_host_variant_and_its_content_are_told() -> None:
    """The second program of a section is compared as the first is."""
    program = format_0_1()
    first, weights = program.segments
    other = replace(first, pieces=(first.pieces[0], pef.Piece(8, b"SECOND")))
    found = told(program, replace(program, segments=(other, weights)))
    assert [(d.part, d.item, d.field) for d in found] == [
        ("sections", "second", "variants.program.graph.content")
    ]


def test_files_that_hold_the_same_otherwise_encoded(tmp_path: Path) -> None:
    """A file may differ in bytes that mean nothing; then that is what is said."""
    program = format_0_1()
    one, other = tmp_path / "one.pef", tmp_path / "other.pef"
    pef.write(program, one)
    pef.write(program, other)
    with pef.open(one) as a, pef.open(other) as b:
        assert differences(a, b) == []
