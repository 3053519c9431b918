"""Several traced models become one PEF: which tensors are one in all graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

import sambac
from pef.program import Program
from pef.warned import warn
from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.optim.settings import group_names, kind_of, trained
from sambaflow.samba.tensors.operands import PlainOperands
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.trace.traced_graph import TracedGraph, group_optimizers, require_one_meaning
from sambahost.models import without_values

from .application import compiled_graph
from .compiling import example_of, training_options
from .graph_names import gradients_of, named_program, outputs_by_port, symbols_by_name
from .requests import CompileRequest


def build_graphs(graphs: Sequence[TracedGraph], request: CompileRequest) -> Program:
    """Compile `graphs` into one program without weights: they come with the models that are traced.

    Raises `SambaError` for tensors that bear one name and differ, `sambac.CompileError` for what
    cannot be compiled.
    """
    require_one_meaning(graphs)
    group_optimizers(graphs)
    shared = {**_shared_ports(graphs), **_shared_states(graphs)}
    options = replace(request.options, memory=_memory(graphs))
    sources = [
        sambac.GraphSource(
            graph.name, graph.model, example_of(graph.call), _own_options(graph, options, request)
        )
        for graph in graphs
    ]
    with without_values(*(graph.model for graph in graphs)), torch.no_grad(), PlainOperands():
        program = sambac.compile_graphs(sources, options, shared=shared)
    _tell_of_common_counts(program, graphs)
    return named_program(program, graphs, request)


def _own_options(
    graph: TracedGraph, options: sambac.CompileOptions, request: CompileRequest
) -> sambac.CompileOptions | None:
    """Return the options of a graph that trains, None for those of all."""
    if not graph.optimizers:
        return None
    own = replace(request, train=True, optimizers=graph.optimizers)
    return training_options(options, graph.model, graph.call, graph.traced, own)


def _tell_of_common_counts(program: Program, graphs: Iterable[TracedGraph]) -> None:
    """Warn of parameters that some graphs alone train, in a group that counts the steps of more."""
    known = symbols_by_name(program)
    users: dict[tuple[int, str], list[dict[int, str]]] = {}
    for graph in graphs:
        trained = gradients_of(program, compiled_graph(program, graph.name))
        for group, parameters in _counted(graph):
            here = {
                n: path
                for n, path in parameters.items()
                if known.get(f"{graph.name}.{path}") in trained
            }
            if here:
                users.setdefault(group, []).append(here)
    for (_, name), found in users.items():
        common = set[int].intersection(*map(set, found))
        alone = {path for here in found for number, path in here.items() if number not in common}
        if alone:
            warn(
                f"the parameter group '{name}' counts the steps of {len(found)} graphs, which do "
                f"not all train {', '.join(sorted(alone))}; torch counts those of each parameter. "
                f"To learn as there, give parameters that the same graphs train a group of their "
                f"own"
            )


def _counted(graph: TracedGraph) -> Iterator[tuple[tuple[int, str], dict[int, str]]]:
    """Yield the parameter groups that count steps, with the paths of parameters by their ids."""
    paths = {id(tensor): path for path, tensor in graph.states.items()}
    for item in graph.optimizers:
        if kind_of(item).counts_steps:
            called = group_names([item])[id(item)]
            for name, group in zip(called, item.param_groups, strict=True):
                known = (id(parameter) for parameter in trained(group))
                yield (id(item), name), {n: paths[n] for n in known if n in paths}


def _shared_ports(graphs: Iterable[TracedGraph]) -> dict[str, str]:
    """Return the regions that inputs and outputs of several graphs, or of both kinds, share."""
    members: dict[str, dict[str, None]] = {}
    for graph in graphs:
        for ports in (graph.inputs, outputs_by_port(graph)):
            for port, tensor in ports.items():
                members.setdefault(tensor.sn_region_name, {})[f"{graph.name}.{port}"] = None
    return {port: region for region, ports in members.items() if len(ports) > 1 for port in ports}


def _shared_states(graphs: Sequence[TracedGraph]) -> dict[str, str]:
    """Return the regions of parameters and buffers: one for those that are one.

    They are one if they are one object, or have one region name, that is, by default, one name. So
    is the state of an optimizer that trains several graphs.
    """
    regions: dict[object, str] = {}
    found: dict[str, str] = {}
    uses = Counter(id(item) for graph in graphs for item in graph.optimizers)
    for graph in graphs:
        for path, tensor in graph.states.items():
            given = tensor._region_name if isinstance(tensor, SambaTensor) else ""
            region = given or samba_name(model_name(graph.model), path)
            found[f"{graph.name}.{path}"] = regions.setdefault(id(tensor), region)
        several = tuple(item for item in graph.optimizers if uses[id(item)] > 1)
        for state, region in replace(graph, optimizers=several).kept_states():
            parameter = graph.states.get(state.owner)
            owner = state.owner if parameter is None else id(parameter)
            found[f"{graph.name}.{state.name}"] = regions.setdefault((owner, state.key), region)
    return found


def _memory(graphs: Iterable[TracedGraph]) -> dict[str, str]:
    """Return the regions of memory that inputs, outputs and parameters ask for."""
    return {
        f"{graph.name}.{name}": "HOST" if tensor.host_memory else str(tensor.mem_type).upper()
        for graph in graphs
        for tensors in (graph.inputs, outputs_by_port(graph), graph.states)
        for name, tensor in tensors.items()
        if isinstance(tensor, SambaTensor) and (tensor.host_memory or tensor.mem_type)
    }
