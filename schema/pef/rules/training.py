"""Training programs: graphs apart from each other, states, argins, host kernels, reductions.

What is said of states holds for all programs that have some, the rest for those that train.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from pef import dtypes
from pef.graphs import trained_models
from pef.program import GraphRole, HostKernel, Program, Section, SectionType
from pef.stages import behind
from pef.states import states_of
from pef.symbols import Symbol, SymbolKind

DROPOUT_MASK = "dropout_mask"
HOST_KERNELS = frozenset({DROPOUT_MASK})
_BEHIND_REDUCE = frozenset(behind(SectionType.REDUCE))


def graphs(program: Program) -> Iterator[str]:
    """Some model trains; evaluations stand beside a training step; each call is in one graph."""
    if not _are_whole(program):
        found = [f"{graph.name} ({graph.role.name} of '{graph.model}')" for graph in program.graphs]
        yield f"a training program has the graphs {', '.join(found)}, {_EXPECTED}"
    end = 0
    for graph in program.graphs:
        if graph.first_call != end:
            yield f"graph '{graph.name}' begins at call {graph.first_call}, expected {end}"
        end = graph.first_call + graph.calls
        for call in range(graph.first_call, end):
            section = program.sections[program.schedule[call]]
            if graph.role is not GraphRole.TRAIN and section.type is not SectionType.FWD:
                kind = section.type.name
                yield f"section '{section.name}' of graph '{graph.name}' is of type {kind}"
    if end != len(program.schedule):
        yield f"the graphs end at call {end} of {len(program.schedule)}"


_EXPECTED = "expected a training step and perhaps an evaluation of each model that trains"


def _are_whole(program: Program) -> bool:
    """Tell whether some model trains, and each graph has a name and a role of its own there."""
    graphs, trained = program.graphs, trained_models(program.graphs)
    strays = [g for g in graphs if g.role is GraphRole.EVAL and g.model not in trained]
    names = {graph.name for graph in graphs}
    roles = {(graph.model, graph.role) for graph in graphs}
    return bool(trained) and not strays and len(names) == len(roles) == len(graphs)


def separate_graphs(program: Program) -> Iterator[str]:
    """Graphs share states and what the caller gives, but no section and nothing they compute."""
    section_owner: dict[int, str] = {}
    symbol_owner: dict[int, str] = {}
    states = states_of(program).all
    for graph in program.graphs:
        for call in range(graph.first_call, graph.first_call + graph.calls):
            index = program.schedule[call]
            section = program.sections[index]
            if section_owner.setdefault(index, graph.name) != graph.name:
                yield f"section '{section.name}' is called by two graphs"
            for symbol in section.outputs:
                if symbol in states:
                    if graph.role is not GraphRole.TRAIN:
                        name = program.symbols[symbol].name
                        yield f"section '{section.name}' of graph '{graph.name}' writes '{name}'"
                elif symbol_owner.setdefault(symbol, graph.name) != graph.name:
                    yield f"'{program.symbols[symbol].name}' is computed by two graphs"


def states(program: Program) -> Iterator[str]:
    """States live throughout, apart from each other, in the persistent part of a region."""
    persistent = {region.kind: region.persistent for region in program.regions}
    found = states_of(program)
    for index in sorted(found.all):
        symbol = program.symbols[index]
        kind = dtypes.BY_NUMBER.get(symbol.dtype)
        if kind is None or not kind.bits or kind.bits % 8:
            yield f"state '{symbol.name}' has elements that are not whole bytes"
        if (symbol.first_call, symbol.last_call) != (-1, len(program.schedule)):
            yield f"state '{symbol.name}' does not live through the whole schedule"
        if symbol.allocation is None:
            yield f"state '{symbol.name}' has no place in memory"
            continue
        place = program.allocations[symbol.allocation]
        if place.address + place.size > persistent.get(place.region, 0):
            where = f"the persistent part of {place.region.name}"
            yield f"state '{symbol.name}' does not lie in {where}"
    yield from _apart(found.own, program)


def packs(program: Program) -> Iterator[str]:
    """The parts of a pack fill it, one after the other, and are states if it is one."""
    found = states_of(program)
    for flat, parts in found.packs.items():
        pack = program.symbols[flat]
        end = pack.offset
        symbols = [(program.symbols[part], part) for part in parts]
        for symbol, part in sorted(symbols, key=lambda found: (found[0].offset, _end(found[0]))):
            if symbol.allocation != pack.allocation or symbol.allocation is None:
                yield f"'{symbol.name}' does not lie in the memory of its pack '{pack.name}'"
            if part in found.packs:
                yield f"the pack '{symbol.name}' is part of the pack '{pack.name}'"
            if (part in found.all) != (flat in found.all):
                yield f"only one of the pack '{pack.name}' and its part '{symbol.name}' is a state"
            if symbol.offset != end:
                where = f"byte {symbol.offset} of the pack '{pack.name}'"
                yield f"'{symbol.name}' begins at {where}, the parts before it end at {end}"
            end = _end(symbol)
        if end != _end(pack):
            yield f"the parts of the pack '{pack.name}' end at {end}, the pack at {_end(pack)}"


def _apart(indices: Iterable[int], program: Program) -> Iterator[str]:
    """Symbols that share an allocation do not share bytes."""
    symbols = [program.symbols[index] for index in indices if program.symbols[index].size]
    symbols.sort(key=lambda symbol: (symbol.allocation or 0, symbol.offset))
    for one, other in pairwise(symbols):
        if one.allocation == other.allocation and other.offset < _end(one):
            yield f"'{one.name}' and '{other.name}' overlap in their allocation"


def _end(symbol: Symbol) -> int:
    return symbol.offset + symbol.size


def updates(program: Program) -> Iterator[str]:
    """An update in place keeps its symbol; what a section writes it reads only in place."""
    found = states_of(program)
    home = {part: flat for flat, parts in found.packs.items() for part in parts}
    for section in program.sections:
        who = f"section '{section.name}'"
        in_place = set()
        for source, target in section.in_place:
            before, after = section.inputs[source], section.outputs[target]
            in_place.add(after)
            if before != after:
                names = (program.symbols[before].name, program.symbols[after].name)
                yield f"{who} updates '{names[0]}' in place under the name '{names[1]}'"
        for index in section.outputs:
            name = program.symbols[index].name
            if index in section.inputs and index not in in_place:
                yield f"{who} reads and writes '{name}', but not in place"
            related = {*found.packs.get(index, ()), home.get(index, index)} - {index}
            if not related.isdisjoint((*section.inputs, *section.outputs)):
                yield f"{who} writes '{name}' and uses what shares its memory"


def argins(program: Program) -> Iterator[str]:
    """Argins are float64 scalars in memory, with their default as content."""
    found = states_of(program).own
    for argin in program.argins:
        symbol = program.symbols[argin.symbol]
        if argin.symbol not in found or not _is_argin(symbol):
            yield f"argin '{argin.name}' is no float64 scalar of kind ARGIN that lives throughout"
        elif symbol.data is None:
            yield f"argin '{argin.name}' has no content"


def host_kernels(program: Program) -> Iterator[str]:
    """Host kernels are of a known kind and make what that kind makes."""
    for kernel in program.host_kernels:
        if kernel.kind not in HOST_KERNELS:
            yield f"host kernel '{kernel.kind}' is unknown"
        elif problem := _mask_problem(kernel, program):
            yield f"host kernel '{kernel.kind}' of section {kernel.section} {problem}"


def _mask_problem(kernel: HostKernel, program: Program) -> str:
    """What is wrong with a kernel that makes a dropout mask, or nothing."""
    inputs = [program.symbols[index] for index in kernel.inputs]
    if len(inputs) != 2 or not all(_is_argin(symbol) for symbol in inputs):
        return "does not read two argins, the rate and the seed"
    outputs = [program.symbols[index] for index in kernel.outputs]
    if len(outputs) != 1 or outputs[0].dtype != dtypes.FLOAT or outputs[0].allocation is None:
        return "does not write one float32 tensor in memory"
    if outputs[0].kind is not SymbolKind.ACTIVATION:
        return f"writes '{outputs[0].name}', which is no activation"
    if not _has_site(kernel.parameters):
        return "has no site, a number, in its parameters"
    return ""


def _has_site(parameters: str) -> bool:
    import json  # few programs have host kernels

    try:
        found = json.loads(parameters)
    except (json.JSONDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and type(found.get("site")) is int and found["site"] >= 0


def _is_argin(symbol: Symbol) -> bool:
    return symbol.kind is SymbolKind.ARGIN and symbol.dtype == dtypes.DOUBLE and symbol.shape == ()


def reductions(program: Program) -> Iterator[str]:
    """A REDUCE section lists gradients in memory, computes nothing, and runs before their use."""
    for section in program.sections:
        if section.type is SectionType.REDUCE:
            yield from _reduction(section, program)
    for graph in program.graphs:
        calls = range(graph.first_call, graph.first_call + graph.calls)
        types = [program.sections[program.schedule[call]].type for call in calls]
        for at, kind in enumerate(types):
            if kind is SectionType.REDUCE and not _BEHIND_REDUCE.isdisjoint(types[:at]):
                yield f"call {calls[at]} reduces gradients that an earlier call has used"


def _reduction(section: Section, program: Program) -> Iterator[str]:
    who = f"section '{section.name}' of type REDUCE"
    if section.weights or section.outputs:
        yield f"{who} has weights or outputs"
    for index in section.inputs:
        symbol = program.symbols[index]
        if symbol.kind is not SymbolKind.GRADIENT or symbol.allocation is None:
            yield f"{who} lists '{symbol.name}', which is no gradient in memory"


OF_TRAINING = (graphs, separate_graphs, host_kernels, reductions)
OF_STATES = (states, packs, updates, argins)
