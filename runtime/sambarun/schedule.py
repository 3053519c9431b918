"""What to run: which calls of the schedule were asked for, and how they group into units.

A unit is what becomes one onnxruntime session: a single section, or adjacent sections that may be
linked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import pef
from pef.wording import listed

from .errors import RunError


class Selection(NamedTuple):
    """The calls that were asked for; a filter left None lets everything through.

    `section_types` are names or members of `pef.SectionType`, `section_ids` positions in the
    section table, `calls` positions in the schedule.
    """

    section_types: tuple[pef.SectionType, ...] | None = None
    section_ids: tuple[int, ...] | None = None
    calls: tuple[int, ...] | None = None

    @property
    def separate(self) -> bool:
        """Whether single sections or calls were asked for, which are then run one by one."""
        return self.section_ids is not None or self.calls is not None

    @property
    def everything(self) -> bool:
        """Whether nothing was left out."""
        return self.section_types is None and not self.separate


class Unit(NamedTuple):
    """Adjacent calls that run as one session, and the symbols that cross its border."""

    calls: tuple[int, ...]
    sections: tuple[int, ...]
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]


def selection(
    program: pef.Program,
    section_types: Iterable[str | pef.SectionType] | None = None,
    section_ids: Iterable[int] | None = None,
    calls: Iterable[int] | None = None,
) -> Selection:
    """Check what was asked for against `program`. Raises `RunError` for what it does not have."""
    return Selection(
        None if section_types is None else _types(program, section_types),
        None if section_ids is None else _indices("section", section_ids, len(program.sections)),
        None if calls is None else _indices("call", calls, len(program.schedule)),
    )


def select(program: pef.Program, chosen: Selection) -> tuple[int, ...]:
    """Return the calls of the schedule that `chosen` lets through, in order."""
    types = None if chosen.section_types is None else set(chosen.section_types)
    ids = None if chosen.section_ids is None else set(chosen.section_ids)
    calls = None if chosen.calls is None else set(chosen.calls)
    return tuple(
        call
        for call, section in enumerate(program.schedule)
        if (types is None or program.sections[section].type in types)
        and (ids is None or section in ids)
        and (calls is None or call in calls)
    )


def units(
    program: pef.Program,
    calls: Sequence[int],
    wanted: Collection[int],
    joinable: Callable[[int, int], bool],
) -> tuple[Unit, ...]:
    """Group `calls` into units.

    `joinable(section, next section)` says whether two sections may share a session; calls that are
    not adjacent never do. A unit of several sections puts out the symbols in `wanted` and those
    that later units read; a unit of one section whatever the section does.
    """
    groups = _groups(program, calls, joinable)
    last_reader: dict[int, int] = {}
    for position, group in enumerate(groups):
        for call in group:
            for symbol in program.sections[program.schedule[call]].inputs:
                last_reader[symbol] = position
    return tuple(
        _unit(program, group, position, last_reader, wanted)
        for position, group in enumerate(groups)
    )


def _types(
    program: pef.Program, asked: Iterable[str | pef.SectionType]
) -> tuple[pef.SectionType, ...]:
    """Return the section types named in `asked`."""
    present = sorted({section.type for section in program.sections})
    names = [kind.name for kind in present]
    found, problems = [], []
    for item in (asked,) if isinstance(asked, str) else asked:
        name = item.name if isinstance(item, pef.SectionType) else item.strip().upper()
        if name in names:
            found.append(pef.SectionType[name])
        else:
            problems.append(
                f"The program has no sections of type {name}; it has {', '.join(names) or 'none'}."
            )
    if problems:
        raise RunError("\n".join(problems))
    return tuple(found)


def _indices(what: str, asked: Iterable[int], count: int) -> tuple[int, ...]:
    """Return `asked` if each is one of `count` positions."""
    found = tuple(asked)
    unknown = [str(index) for index in found if not 0 <= index < count]
    if unknown:
        range_ = f"{what}s go from 0 to {count - 1}" if count else f"the program has no {what}s"
        raise RunError(f"There is no {what} {listed(unknown, separator=', ')}; {range_}.")
    return found


def _groups(
    program: pef.Program, calls: Sequence[int], joinable: Callable[[int, int], bool]
) -> list[list[int]]:
    """Split `calls` where two neighbours must not share a session."""
    groups: list[list[int]] = []
    touched: set[int] = set()
    for call in calls:
        section = program.schedule[call]
        outputs = program.sections[section].outputs
        joins = (
            bool(groups)
            and groups[-1][-1] == call - 1
            and joinable(program.schedule[call - 1], section)
            # A symbol written twice, or after it was read, would be two values of one name.
            and touched.isdisjoint(outputs)
        )
        if joins:
            groups[-1].append(call)
        else:
            groups.append([call])
            touched.clear()
        touched.update(outputs, program.sections[section].inputs)
    return groups


def _unit(
    program: pef.Program,
    group: Sequence[int],
    position: int,
    last_reader: Mapping[int, int],
    wanted: Collection[int],
) -> Unit:
    """Return the unit of the calls in `group`, the one at `position` among all."""
    sections = tuple(program.schedule[call] for call in group)
    inputs: dict[int, None] = {}
    weights: dict[int, None] = {}
    produced: dict[int, None] = {}
    for index in sections:
        section = program.sections[index]
        inputs.update((s, None) for s in section.inputs if s not in produced)
        weights.update(dict.fromkeys(section.weights))
        produced.update(dict.fromkeys(section.outputs))
    outputs = tuple(
        symbol
        for symbol in produced
        if len(sections) == 1 or symbol in wanted or last_reader.get(symbol, -1) > position
    )
    return Unit(tuple(group), sections, tuple(inputs), tuple(weights), outputs)
