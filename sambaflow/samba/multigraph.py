"""Several traced models in one PEF: which tensors are one, and what their names are in the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .call import Call
from .compiling import (
    API,
    Wish,
    example_of,
    output_ports,
    shared_options,
    stored,
    without_values,
)
from .device import application_of
from .errors import SambaError
from .names import model_name, samba_name
from .tensor import SambaTensor, to_torch
from .tracing import Traced

if TYPE_CHECKING:
    from pef.program import Alias, Program


@dataclass(frozen=True)
class TracedGraph:
    """A model as it was traced once; `name` is that of the graph, empty before it has one."""

    model: nn.Module
    call: Call
    traced: Traced
    name: str = ""

    @property
    def inputs(self) -> dict[str, SambaTensor]:
        """The inputs by what the compiler calls them."""
        return {named.port: named.tensor for named in self.call.tensors}

    @property
    def outputs(self) -> dict[str, SambaTensor]:
        """The outputs by what the compiler calls them."""
        return dict(zip(output_ports(self.traced), self.traced.outputs, strict=True))

    @property
    def states(self) -> dict[str, Tensor]:
        """The parameters and buffers by their paths."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}


def build_graphs(graphs: Sequence[TracedGraph], wish: Wish) -> Program:
    """Compile `graphs` into one program without weights: they come with the models that are traced.

    Raises `SambaError` for tensors that bear one name and differ, `sambac.CompileError` for what
    cannot be compiled.
    """
    import sambac

    require_one_meaning(graphs)
    shared = {**_shared_ports(graphs), **_shared_states(graphs)}
    options = shared_options(wish, _memory(graphs))
    with ExitStack() as stack, torch.no_grad():
        for model in {id(graph.model): graph.model for graph in graphs}.values():
            stack.enter_context(without_values(model))
        sources = [
            sambac.GraphSource(graph.name, graph.model, example_of(graph.call)) for graph in graphs
        ]
        program = sambac.compile_graphs(sources, options, shared=shared)
    return _named(program, graphs, wish)


def graphs_of(program: Program) -> dict[str, dict[str, dict[str, str]]]:
    """Return the graphs of a program: `inputs` and `outputs`, each ports by samba's names.

    There are none in a program of one model.
    """
    found = application_of(program).get("graphs")
    return found if isinstance(found, dict) else {}


def require_one_meaning(graphs: Iterable[TracedGraph]) -> None:
    """Raise `SambaError` that lists tensors of one name with different shapes, types or values."""
    problems = []
    first: dict[str, tuple[str, str, Tensor]] = {}
    for graph in graphs:
        for kind, name, tensor in _tensors(graph):
            where = f"graph '{graph.name}'" if graph.name else f"model '{graph.traced.name}'"
            known = first.setdefault(name, (kind, where, tensor))
            problem = _difference(known[2], tensor)
            if problem:
                problems.append(f"{kind} '{name}' of {where} {problem} {known[0]} of {known[1]}")
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise SambaError(
            f"tensors of one name are one in all graphs, and these differ; give them names of "
            f"their own (sn_name of an input, trace_prefix for outputs, model.name for weights):\n"
            f"{listed}"
        )


def _tensors(graph: TracedGraph) -> Iterator[tuple[str, str, Tensor]]:
    for kind, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        yield from ((kind, tensor.sn_name, tensor) for tensor in tensors.values())
    for path, tensor in graph.states.items():
        yield "parameter", samba_name(model_name(graph.model), path), tensor


def _difference(known: Tensor, tensor: Tensor) -> str:
    if known is tensor:
        return ""
    one, other = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (tensor, known))
    if one != other:
        return f"is {one}, and {other} is the"
    states = isinstance(tensor, nn.Parameter) and not (known.is_meta or tensor.is_meta)
    if states and not torch.equal(to_torch(known), to_torch(tensor)):
        return "has other values than the"
    return ""


def _shared_ports(graphs: Iterable[TracedGraph]) -> dict[str, str]:
    """Return the regions that inputs and outputs of several graphs, or of both kinds, share."""
    members: dict[str, dict[str, None]] = {}
    for graph in graphs:
        for ports in (graph.inputs, graph.outputs):
            for port, tensor in ports.items():
                members.setdefault(tensor.sn_region_name, {})[f"{graph.name}.{port}"] = None
    return {port: region for region, ports in members.items() if len(ports) > 1 for port in ports}


def _shared_states(graphs: Iterable[TracedGraph]) -> dict[str, str]:
    """Return the regions of parameters and buffers: one for those that are one.

    They are one if they are one object, or have one region name, that is, by default, one name.
    """
    regions: dict[int, str] = {}
    found: dict[str, str] = {}
    for graph in graphs:
        for path, tensor in graph.states.items():
            given = tensor._region_name if isinstance(tensor, SambaTensor) else ""
            region = given or samba_name(model_name(graph.model), path)
            found[f"{graph.name}.{path}"] = regions.setdefault(id(tensor), region)
    return found


def _memory(graphs: Iterable[TracedGraph]) -> dict[str, str]:
    """Return the regions of memory that inputs and outputs ask for."""
    return {
        f"{graph.name}.{port}": "HOST" if tensor.host_memory else str(tensor.mem_type).upper()
        for graph in graphs
        for ports in (graph.inputs, graph.outputs)
        for port, tensor in ports.items()
        if tensor.host_memory or tensor.mem_type
    }


def _named(program: Program, graphs: Sequence[TracedGraph], wish: Wish) -> Program:
    """Return `program` with samba's names, and what it has to know of its graphs."""
    compiled = {graph.name: graph for graph in program.graphs}
    known = {alias.name: alias.symbol for alias in program.aliases}
    known |= {symbol.name: index for index, symbol in enumerate(program.symbols)}
    signatures: dict[str, dict[str, dict[str, str]]] = {}
    symbols: dict[str, int] = {}
    for graph in graphs:
        named = compiled[graph.name]
        ports = {port.name: port.symbol for port in (*named.inputs, *named.outputs)}
        inputs, outputs = _by_name(graph.inputs, ports), _by_name(graph.outputs, ports)
        signatures[graph.name] = {"inputs": inputs, "outputs": outputs}
        states = {
            samba_name(model_name(graph.model), path): known.get(f"{graph.name}.{path}")
            for path in graph.states
        }
        found = {**{n: ports[port] for n, port in (*inputs.items(), *outputs.items())}, **states}
        symbols = {**{n: symbol for n, symbol in found.items() if symbol is not None}, **symbols}
    facts = json.loads(program.producer.options)
    models = dict.fromkeys(model_name(graph.model) for graph in graphs)
    facts["application"] = {
        **stored(wish.metadata),
        "model": "+".join(models),
        "graphs": signatures,
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


def _by_name(tensors: Mapping[str, SambaTensor], ports: Mapping[str, int]) -> dict[str, str]:
    """Return the ports that the program has of `tensors`, by samba's names."""
    return {tensor.sn_name: port for port, tensor in tensors.items() if port in ports}


def _aliases(symbols: Mapping[str, int], known: Mapping[str, int]) -> Iterator[Alias]:
    """Yield samba's names of symbols that are not called so already."""
    from pef.program import Alias

    for name, symbol in sorted(symbols.items()):
        if known.get(name) != symbol:
            yield Alias(name, symbol, API)


def find_traced(
    traced: Iterable[TracedGraph], name: str, stop: Iterable[SambaTensor]
) -> TracedGraph:
    """Return the traced model whose outputs `stop` are, as the graph `name`.

    Raises `SambaError` if there is none.
    """
    wanted = {tensor.sn_name for tensor in stop}
    for graph in traced:
        if wanted <= {output.sn_name for output in graph.traced.outputs}:
            return replace(graph, name=name)
    raise SambaError(
        f"graph '{name}' stops at {sorted(wanted)}, which are not outputs of one traced model; "
        f"trace it first with samba.utils.trace_multigraph(model, inputs, trace_prefix=...)"
    )
