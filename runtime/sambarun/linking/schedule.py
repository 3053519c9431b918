"""What to run: which calls of the schedule were asked for, and how they group into units.

A unit is what becomes one onnxruntime session: a single section, or adjacent sections that may be
linked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import pef
from pef.graphs import graph_of, trained_models
from pef.states import States, is_training
from pef.wording import did_you_mean, listed
from sambarun.errors import NOT_TRAINING, RunError
from sambarun.selection import Reduction, Selection

_NAMES_SHOWN = 10
_FORWARD = frozenset({pef.SectionType.FWD})


class Chosen(NamedTuple):
    """What a `Selection` means in a program; a filter left None lets everything through.

    `section_ids` are positions in the section table, `calls` positions in the schedule. `graph` is
    the position of the one graph that all of them belong to.
    """

    section_types: tuple[pef.SectionType, ...] | None = None
    section_ids: tuple[int, ...] | None = None
    calls: tuple[int, ...] | None = None
    graph: int = 0
    reduction: Reduction = "normal"

    @property
    def separate(self) -> bool:
        """Whether single sections or calls were asked for, which are then run one by one."""
        return self.section_ids is not None or self.calls is not None

    @property
    def overlaps(self) -> bool:
        """Whether reductions run beside sections."""
        return self.reduction in ("inorder", "optimal")

    @property
    def everything(self) -> bool:
        """Whether nothing was left out."""
        return self.section_types is None and not self.separate


class Unit(NamedTuple):
    """Adjacent calls that run as one session, and the symbols that cross its border.

    A symbol that is among both the inputs and the outputs is updated in place.
    """

    calls: tuple[int, ...]
    sections: tuple[int, ...]
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]


def resolve(program: pef.Program, asked: Selection) -> Chosen:
    """Return what `asked` means in `program`. Raises `RunError` for what it does not have.

    Of several graphs, those that train are meant where only they have what is asked for. Of a model
    that trains, FWD alone means its evaluation unless `train` is set.
    """
    if asked.train and not is_training(program):
        raise RunError(NOT_TRAINING)
    types, ids, calls = asked.section_types, asked.section_ids, asked.calls
    chosen = Chosen(
        None if types is None else _types(program, types),
        None if ids is None else _indices("section", ids, len(program.sections)),
        None if calls is None else _indices("call", calls, len(program.schedule)),
        reduction=asked.reduction,
    )
    if chosen.separate:
        chosen = chosen._replace(graph=_graph_of_parts(program, chosen, asked.graph))
        _require_some(program, chosen)
        return chosen
    number = _graph(program, chosen, asked.train, asked.graph)
    if not calls_of(program, number) and set(chosen.section_types or ()) == _FORWARD:
        chosen = chosen._replace(section_types=None)  # all results are constants
    _require_types(program, chosen, number)
    return chosen._replace(graph=number)


def select(program: pef.Program, chosen: Chosen) -> tuple[int, ...]:
    """Return the calls of the schedule that `chosen` lets through, in order."""
    types = None if chosen.section_types is None else set(chosen.section_types)
    ids = None if chosen.section_ids is None else set(chosen.section_ids)
    calls = None if chosen.calls is None else set(chosen.calls)
    return tuple(
        call
        for call in calls_of(program, chosen.graph)
        for section in (program.schedule[call],)
        if (types is None or program.sections[section].type in types)
        and (ids is None or section in ids)
        and (calls is None or call in calls)
    )


def calls_of(program: pef.Program, graph: int) -> range:
    """Return the calls of graph number `graph`."""
    found = program.graphs[graph]
    return range(found.first_call, found.first_call + found.calls)


def graph_named(program: pef.Program, name: str) -> int | None:
    """Return the position of the graph called `name`, None if there is none."""
    return next((i for i, graph in enumerate(program.graphs) if graph.name == name), None)


def units(
    program: pef.Program,
    calls: Sequence[int],
    wanted: Collection[int],
    joinable: Callable[[int, int], bool],
    states: States,
) -> tuple[Unit, ...]:
    """Group `calls` into units.

    `joinable(section, next section)` says whether two sections may share a session; calls that are
    not adjacent never do. A unit of several sections puts out the states it updates, the symbols
    in `wanted` and those that later units read; a unit of one section whatever the section does.
    """
    groups = _groups(program, calls, joinable, Overlaps(states))
    last_reader: dict[int, int] = dict.fromkeys(states.all, len(groups))
    for position, group in enumerate(groups):
        for call in group:
            for symbol in program.sections[program.schedule[call]].inputs:
                for part in (symbol, *states.packs.get(symbol, ())):
                    last_reader[part] = max(last_reader.get(part, 0), position)
    return tuple(
        _unit(program, group, position, last_reader, wanted)
        for position, group in enumerate(groups)
    )


def _types(
    program: pef.Program, asked: Iterable[str | pef.SectionType]
) -> tuple[pef.SectionType, ...]:
    """Return the section types named in `asked`."""
    present = sorted({section.type for section in program.sections} or _FORWARD)
    names = [kind.name for kind in present]
    found, problems = [], []
    for item in asked:
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


def _graph(program: pef.Program, chosen: Chosen, train: bool, name: str | None) -> int:
    """Return the graph that is meant by `name`, or by what is asked of a model that trains."""
    graphs = program.graphs
    exact = None if name is None else graph_named(program, name)
    if exact is not None:
        return exact
    forward = set(chosen.section_types or ()) == _FORWARD
    if name is None:
        asked = train or not (forward or chosen.section_types is None)
        trained = trained_models(graphs) if asked else ()
        name = trained[0] if trained else graphs[0].model
    role = pef.GraphRole.EVAL if forward and not train else pef.GraphRole.TRAIN
    for wanted in (role, pef.GraphRole.INFERENCE):
        number = graph_of(graphs, name, wanted)
        if number is not None:
            return number
    if any(graph.model == name for graph in graphs):
        word = role.name.lower()
        raise RunError(
            f"The program has no graph '{word}'; say train=True (--train) to run FWD sections."
        )
    raise RunError(_no_such_graph(program, name))


def _no_such_graph(program: pef.Program, name: str) -> str:
    names = [graph.name for graph in program.graphs]
    hint = did_you_mean(name, [*trained_models(program.graphs), *names])
    known = listed([f"'{known}'" for known in names], _NAMES_SHOWN, ", ") or "none"
    return f"There is no graph '{name}'{hint}; the program has {known}."


def _require_types(program: pef.Program, chosen: Chosen, graph: int) -> None:
    """Raise `RunError` unless graph number `graph` has sections of all types asked for."""
    calls = calls_of(program, graph)
    present = {program.sections[program.schedule[call]].type for call in calls}
    missing = [kind.name for kind in chosen.section_types or () if kind not in present]
    if missing:
        name, has = program.graphs[graph].name, ", ".join(kind.name for kind in sorted(present))
        raise RunError(
            f"The graph '{name}' has no sections of type {', '.join(missing)}; it has {has}."
        )


def _require_some(program: pef.Program, chosen: Chosen) -> None:
    """Raise `RunError` where nothing is all that was asked for, though each alone names some."""
    asked = {
        "types": [kind.name for kind in chosen.section_types or ()],
        "ids": [str(number) for number in chosen.section_ids or ()],
        "calls": [str(number) for number in chosen.calls or ()],
    }
    given = [
        f"{what} {listed(names, _NAMES_SHOWN, ', ')}" for what, names in asked.items() if names
    ]
    if given and not select(program, chosen):
        raise RunError(f"No section has {' and '.join(given)}: nothing would run.")


def _graph_of_parts(program: pef.Program, chosen: Chosen, name: str | None) -> int:
    """Return the graph of the sections and calls that were asked for one by one.

    Raises `RunError` if they belong to several, or to another than the graph or model `name`.
    """
    ids, calls = set(chosen.section_ids or ()), set(chosen.calls or ())
    owners = [
        graph
        for graph in range(len(program.graphs))
        if any(call in calls or program.schedule[call] in ids for call in calls_of(program, graph))
    ]
    if len(owners) > 1:
        names = " and ".join(f"'{program.graphs[graph].name}'" for graph in owners)
        raise RunError(f"The sections belong to the graphs {names}; run those of one at a time.")
    owner = owners[0] if owners else 0
    known = (program.graphs[owner].name, program.graphs[owner].model) if owners else ()
    if name is not None and name not in known:
        models = {graph.model for graph in program.graphs}
        if graph_named(program, name) is None and name not in models:
            raise RunError(_no_such_graph(program, name))
        found = program.graphs[owner].name
        raise RunError(f"What was selected belongs to the graph '{found}', not to '{name}'.")
    return owner


class Overlaps:
    """What shares memory with a symbol: itself, and what spans it or lies inside it."""

    def __init__(self, states: States) -> None:
        self._others: dict[int, tuple[int, ...]] = {}
        for flat, members in states.packs.items():
            self._others[flat] = members
            self._others.update((member, (flat,)) for member in members)

    def touched(self, symbols: Iterable[int]) -> set[int]:
        """Return `symbols` with everything that shares memory with them."""
        found = set(symbols)
        if self._others:
            found.update(other for symbol in tuple(found) for other in self._others.get(symbol, ()))
        return found


def _groups(
    program: pef.Program,
    calls: Sequence[int],
    joinable: Callable[[int, int], bool],
    overlaps: Overlaps,
) -> list[list[int]]:
    """Split `calls` where two neighbours must not share a session.

    A session runs its operators in an order of its own. So what one of its sections updates no
    other section of it may touch, whether the update is in place or a second value of one name.
    Nor may one section write a pack and another one read a part of it, or the reverse.
    """
    groups: list[list[int]] = []
    touched: set[int] = set()
    apart: set[int] = set()
    for call in calls:
        section = program.sections[program.schedule[call]]
        joins = (
            bool(groups)
            and _follows(program, groups[-1][-1], call)
            and joinable(program.schedule[groups[-1][-1]], program.schedule[call])
            and touched.isdisjoint(overlaps.touched(section.outputs))
            and apart.isdisjoint(section.inputs)
        )
        if joins:
            groups[-1].append(call)
        else:
            groups.append([call])
            touched.clear()
            apart.clear()
        touched.update(section.outputs, section.inputs)
        apart.update(overlaps.touched(section.outputs).difference(section.outputs))
        apart.update(section.outputs[target] for _, target in section.in_place)
    return groups


def _follows(program: pef.Program, call: int, other: int) -> bool:
    """Return whether nothing computes between the two calls: REDUCE sections do not."""
    return other > call and all(
        program.sections[program.schedule[between]].type is pef.SectionType.REDUCE
        for between in range(call + 1, other)
    )


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
