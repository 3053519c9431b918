"""Programs of older formats, whose facts stood in names, kinds and features, as of today.

Before 0.8:

chips       the producer's record says with which calls they begin, as `chip_calls`

Before 0.5:

argins      the option is what the name ends with, the group what stands before

Before 0.4:

graphs      `train` and `eval` of a model that trains alone; `fit/train`, `fit/eval` of the
            model `fit` in a program that requires `several_models`
states      what lives before the first call in memory and is no constant, by its kind
packs       the symbol that bears the name of its allocation, over the others in it
regions     allocations with a name, none of whose symbols can be a state
gradients   `<name>__grad`; the state of an optimizer is `<parameter>__<what>`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from .errors import PefError
from .program import Argin, GraphRole, NamedGraph, Port, Program
from .states import (
    EVAL_GRAPH,
    MAIN_GRAPH,
    SEVERAL_MODELS,
    SHARED_REGIONS,
    STATE_KINDS,
    TRAIN_GRAPH,
    has_states,
    is_training,
)
from .symbols import Duration, Symbol, SymbolKind

STATED_SINCE = (0, 8)
"""The first format whose files state all of these facts."""

_ARGINS_SINCE = (0, 5)
_STORED_SINCE = (0, 4)

_CHIPS = "chip_calls"
_ROLES = {TRAIN_GRAPH: GraphRole.TRAIN, EVAL_GRAPH: GraphRole.EVAL}
_GRADIENT = "__grad"


def stated(program: Program, version: tuple[int, int]) -> Program:
    """Return `program` with the facts that the format of `version` had stated otherwise.

    Its indices must be in range. Raises `PefError` for a record in which chips begin with no calls.
    """
    if version < _STORED_SINCE:
        program = _stored(program)
    if version < _ARGINS_SINCE:
        program = replace(program, argins=tuple(map(_argin, program.argins)))
    return _with_chips(program) if _CHIPS in program.producer.options else program


def _with_chips(program: Program) -> Program:
    """Return `program`, whose producer's record has chips, with these in its graphs."""
    import json  # which other programs do without

    try:
        found = json.loads(program.producer.options).get(_CHIPS, [])
    except (ValueError, AttributeError):  # a record for people, whatever it says
        return program
    if not isinstance(found, list) or not all(type(start) is int for start in found):
        raise PefError(f"The chips of this program begin with {found!r}; calls were expected.")
    calls = {call for g in program.graphs for call in range(g.first_call, g.first_call + g.calls)}
    if not calls.issuperset(found):
        raise PefError(f"The chips of this program begin with {found}, not all of which are calls.")
    graphs = (
        replace(
            graph,
            chip_calls=tuple(
                start for start in found if 0 <= start - graph.first_call < graph.calls
            ),
        )
        for graph in program.graphs
    )
    return replace(program, graphs=tuple(graphs))


def _argin(argin: Argin) -> Argin:
    group, _, option = argin.name.rpartition(".")
    return replace(argin, group=group, option=option)


def _stored(program: Program) -> Program:
    tenants = _tenants(program)
    shared = _shared(program, tenants)
    symbols = tuple(_symbols(program, tenants))
    return replace(
        program,
        allocations=tuple(
            replace(place, shared=True) if number in shared else place
            for number, place in enumerate(program.allocations)
        ),
        symbols=symbols,
        graphs=tuple(_graph(graph, program) for graph in program.graphs),
    )


def _tenants(program: Program) -> dict[int, list[int]]:
    """Return the symbols in each allocation."""
    found: dict[int, list[int]] = {}
    for index, symbol in enumerate(program.symbols):
        if symbol.allocation is not None:
            found.setdefault(symbol.allocation, []).append(index)
    return found


def _shared(program: Program, tenants: Mapping[int, list[int]]) -> set[int]:
    if SHARED_REGIONS not in program.requires.features:
        return set()
    return {
        number
        for number, found in tenants.items()
        if program.allocations[number].name
        and STATE_KINDS.isdisjoint(program.symbols[index].kind for index in found)
    }


def _symbols(program: Program, tenants: Mapping[int, list[int]]) -> Iterator[Symbol]:
    constants = {index for section in program.sections for index in section.weights}
    lasting, packs = has_states(program), {}
    known: dict[str, int] = {}
    if lasting:
        packs = _packs(program, tenants)
        known = {alias.name: alias.symbol for alias in program.aliases}
        known |= {symbol.name: index for index, symbol in enumerate(program.symbols)}
        known = {n: i for n, i in known.items() if program.symbols[i].kind is SymbolKind.WEIGHT}
    spans = frozenset(packs.values())
    for index, symbol in enumerate(program.symbols):
        flat = index in spans  # what it holds are its parts
        yield replace(
            symbol,
            duration=_duration(symbol, constant=index in constants, lasting=lasting),
            parameter=None if flat else known.get(_owner(symbol)),
            pack=packs.get(index),
        )


def _owner(symbol: Symbol) -> str:
    """Return the name of the parameter that a gradient, or an optimizer's state, belongs to."""
    if symbol.kind in (SymbolKind.GRADIENT, SymbolKind.OPT_STATE):
        return symbol.name.rpartition("__")[0]
    return ""


def _duration(symbol: Symbol, *, constant: bool, lasting: bool) -> Duration:
    if constant:
        return Duration.CONSTANT
    held = symbol.kind in STATE_KINDS and symbol.first_call < 0
    if held and lasting:
        return Duration.STATE
    # A weight that a graph puts out as it is, without a section that binds it.
    fixed = symbol.kind in (SymbolKind.WEIGHT, SymbolKind.CONSTANT) and symbol.first_call < 0
    return Duration.CONSTANT if fixed else Duration.TRANSIENT


def _packs(program: Program, tenants: Mapping[int, list[int]]) -> dict[int, int]:
    """Return the pack of each symbol that lies in one."""
    packs: dict[int, int] = {}
    for allocation, together in tenants.items():
        found = [index for index in together if program.symbols[index].kind in STATE_KINDS]
        name = program.allocations[allocation].name
        flat = next((index for index in found if program.symbols[index].name == name), None)
        if flat is not None:
            packs.update((index, flat) for index in found if index != flat)
    return packs


def _graph(graph: NamedGraph, program: Program) -> NamedGraph:
    model, role = _role(graph.name, program)
    inputs = {port.name: port.symbol for port in graph.inputs}
    outputs = {port.name: port.symbol for port in graph.outputs}
    if role is not GraphRole.TRAIN:
        return replace(graph, model=model, role=role)
    return replace(
        graph,
        inputs=tuple(_with_gradient(port, outputs) for port in graph.inputs),
        outputs=tuple(_with_gradient(port, inputs) for port in graph.outputs),
        model=model,
        role=role,
    )


def _with_gradient(port: Port, ports: Mapping[str, int]) -> Port:
    return replace(port, gradient=ports.get(port.name + _GRADIENT))


def _role(name: str, program: Program) -> tuple[str, GraphRole]:
    """Return the model and the role of the graph `name`."""
    several = SEVERAL_MODELS in program.requires.features
    if is_training(program) and several:
        model, mark, last = name.rpartition("/")
        return (model, _ROLES[last]) if mark and last in _ROLES else (name, GraphRole.INFERENCE)
    if is_training(program) and name in _ROLES:
        return "", _ROLES[name]
    alone = len(program.graphs) == 1 and name == MAIN_GRAPH
    return "" if alone else name, GraphRole.INFERENCE
