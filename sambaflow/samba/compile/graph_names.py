"""What is called how: outputs of a traced model by the compiler, all else by samba.

Of a program of several graphs also which graph has what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import nn

from pef.graphs import gradient_name
from pef.program import Alias, NamedGraph, Program
from pef.symbols import SymbolKind
from sambac.frontend.torch.programs.names import result_names
from sambac.graph.names import FreshNames
from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.trace.call import ForwardCall
from sambaflow.samba.trace.traced_graph import TracedGraph
from sambaflow.samba.trace.tracing import Traced

from .application import (
    API,
    SETTINGS,
    GraphSignature,
    compiled_graph,
    plain,
    stored,
    with_application,
)
from .requests import CompileRequest


def output_ports(model: nn.Module, call: ForwardCall, traced: Traced) -> tuple[str, ...]:
    """Return what the compiler calls the outputs: not as inputs and parameters are called."""
    states = (*dict(model.named_parameters()), *dict(model.named_buffers()))
    fresh = FreshNames((*(named.port for named in call.tensors), *states))
    names = result_names(traced.structure)
    return tuple(fresh(names[leaf]) for leaf in traced.leaves)


def outputs_by_port(graph: TracedGraph) -> dict[str, SambaTensor]:
    """Return the outputs of a traced model by what the compiler calls them."""
    ports = output_ports(graph.model, graph.call, graph.traced)
    return dict(zip(ports, graph.traced.outputs, strict=True))


def named_program(
    program: Program, graphs: Sequence[TracedGraph], request: CompileRequest
) -> Program:
    """Return `program` with samba's names, and what it has to know of its graphs."""
    known = symbols_by_name(program)
    signatures: dict[str, GraphSignature] = {}
    symbols: dict[str, int] = {}
    for graph in graphs:
        compiled = compiled_graph(program, graph.name)
        ports = {port.name: port.symbol for port in (*compiled.inputs, *compiled.outputs)}
        inputs, outputs = _by_name(graph.inputs, ports), _by_name(outputs_by_port(graph), ports)
        signatures[graph.name] = GraphSignature(inputs, outputs, bool(graph.optimizers))
        found = {n: ports[port] for n, port in (*inputs.items(), *outputs.items())}
        seeds = {port.name: port.gradient for port in compiled.outputs}
        starts = ((gradient_name(n), seeds[p]) for n, p in outputs.items())
        found |= {name: symbol for name, symbol in starts if symbol is not None}
        gradients = gradients_of(program, compiled)
        symbols = {**found, **_states(graph, known, gradients), **symbols}
    models = dict.fromkeys(model_name(graph.model) for graph in graphs)
    facts = {
        **stored(request.metadata),
        "model": "+".join(models),
        SETTINGS: plain({graph.name: graph.traced.settings for graph in graphs}),
        "graphs": {name: signature._asdict() for name, signature in signatures.items()},
        "unused_inputs": sorted(
            {tensor.sn_name for graph in graphs for tensor in graph.inputs.values()} - {*symbols}
        ),
    }
    aliases = (*program.aliases, *_aliases(symbols, known))
    return with_application(replace(program, aliases=aliases), facts)


def symbols_by_name(program: Program) -> dict[str, int]:
    """Return the symbols of `program` by their names and aliases."""
    known = {alias.name: alias.symbol for alias in program.aliases}
    return known | {symbol.name: index for index, symbol in enumerate(program.symbols)}


def gradients_of(program: Program, graph: NamedGraph) -> dict[int, int]:
    """Return the gradients that `graph` computes, by parameter."""
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
    for name, symbol in sorted(symbols.items()):
        if known.get(name) != symbol:
            yield Alias(name, symbol, API)
