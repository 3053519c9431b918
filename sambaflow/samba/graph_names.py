"""What is called how in a program of several graphs: samba's names, and which graph has what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from .compiling import API, CompileRequest, stored
from .device import application_of
from .errors import SambaError
from .names import gradient_name, model_name, samba_name
from .tensor import SambaTensor
from .traced_graph import TracedGraph

if TYPE_CHECKING:
    from pef.program import Alias, NamedGraph, Program


class GraphSignature(NamedTuple):
    """A graph in a program: its inputs and outputs, ports by samba's names, and if it trains."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    trains: bool


def graphs_of(program: Program) -> dict[str, GraphSignature]:
    """Return the graphs of a program by name; there are none in a program of one model."""
    found = application_of(program).get("graphs")
    if not isinstance(found, dict):
        return {}
    signatures = {
        name: GraphSignature(graph["inputs"], graph["outputs"], bool(graph.get("trains")))
        for name, graph in found.items()
    }
    # JSON has them in the order of their names.
    return dict(sorted(signatures.items(), key=lambda i: compiled_graph(program, i[0]).first_call))


def named_program(program: Program, graphs: Sequence[TracedGraph], wish: CompileRequest) -> Program:
    """Return `program` with samba's names, and what it has to know of its graphs."""
    known = {alias.name: alias.symbol for alias in program.aliases}
    known |= {symbol.name: index for index, symbol in enumerate(program.symbols)}
    signatures: dict[str, GraphSignature] = {}
    symbols: dict[str, int] = {}
    for graph in graphs:
        compiled = compiled_graph(program, graph.name)
        ports = {port.name: port.symbol for port in (*compiled.inputs, *compiled.outputs)}
        inputs, outputs = _by_name(graph.inputs, ports), _by_name(graph.outputs, ports)
        signatures[graph.name] = GraphSignature(inputs, outputs, bool(graph.optimizers))
        found = {n: ports[port] for n, port in (*inputs.items(), *outputs.items())}
        seeds = {port.name: port.gradient for port in compiled.outputs}
        starts = ((gradient_name(n), seeds[p]) for n, p in outputs.items())
        found |= {name: symbol for name, symbol in starts if symbol is not None}
        gradients = _gradients(program, compiled)
        symbols = {**found, **_states(graph, known, gradients), **symbols}
    facts = json.loads(program.producer.options)
    models = dict.fromkeys(model_name(graph.model) for graph in graphs)
    facts["application"] = {
        **stored(wish.metadata),
        "model": "+".join(models),
        "graphs": {name: signature._asdict() for name, signature in signatures.items()},
        "unused_inputs": sorted(
            {tensor.sn_name for graph in graphs for tensor in graph.inputs.values()} - {*symbols}
        ),
    }
    options = json.dumps(facts, sort_keys=True)
    return replace(
        program,
        aliases=(*program.aliases, *_aliases(symbols, known)),
        producer=replace(program.producer, options=options),
    )


def compiled_graph(program: Program, name: str) -> NamedGraph:
    """Return the graph `name` of a program; of a model that trains its training step.

    Raises `SambaError` for a program that has none of that model.
    """
    from pef import GraphRole
    from pef.graphs import graph_of

    roles = (GraphRole.TRAIN, GraphRole.INFERENCE)
    places = (graph_of(program.graphs, name, role) for role in roles)
    found = next((place for place in places if place is not None), None)
    if found is None:
        raise SambaError(
            f"the PEF has no graph of the model '{name}', which it lists; compile again"
        )
    return program.graphs[found]


def _gradients(program: Program, graph: NamedGraph) -> dict[int, int]:
    """Return the gradients that `graph` computes, by parameter."""
    from pef import SymbolKind

    calls = program.schedule[graph.first_call : graph.first_call + graph.calls]
    made = {index for section in calls for index in program.sections[section].outputs}
    owners = ((program.symbols[index], index) for index in sorted(made))
    return {
        symbol.parameter: index
        for symbol, index in owners
        if symbol.kind is SymbolKind.GRADIENT and symbol.parameter is not None
    }


def _states(
    graph: TracedGraph, known: Mapping[str, int], gradients: Mapping[int, int]
) -> dict[str, int]:
    """Return the symbols of parameters, buffers, their gradients and the state of optimizers."""
    wanted = {
        samba_name(model_name(graph.model), path): f"{graph.name}.{path}" for path in graph.states
    }
    wanted |= {samba: f"{graph.name}.{name}" for name, samba in graph.optimizer_states.items()}
    found = {name: known[spelled] for name, spelled in wanted.items() if spelled in known}
    trained = [(name, gradients[symbol]) for name, symbol in found.items() if symbol in gradients]
    return {**{gradient_name(name): gradient for name, gradient in trained}, **found}


def _by_name(tensors: Mapping[str, SambaTensor], ports: Mapping[str, int]) -> dict[str, str]:
    """Return the ports that the program has of `tensors`, by samba's names."""
    return {tensor.sn_name: port for port, tensor in tensors.items() if port in ports}


def _aliases(symbols: Mapping[str, int], known: Mapping[str, int]) -> Iterator[Alias]:
    """Yield samba's names of symbols that are not called so already."""
    from pef.program import Alias

    for name, symbol in sorted(symbols.items()):
        if known.get(name) != symbol:
            yield Alias(name, symbol, API)
