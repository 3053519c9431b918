"""Several traced models become one PEF: which tensors are one in all graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from .compiling import Wish, example_of, shared_options, training_options, without_values
from .graph_names import named_program
from .names import model_name, samba_name
from .tensor import SambaTensor
from .traced_graph import TracedGraph, group_optimizers, require_one_meaning

if TYPE_CHECKING:
    import sambac
    from pef.program import Program


def build_graphs(graphs: Sequence[TracedGraph], wish: Wish) -> Program:
    """Compile `graphs` into one program without weights: they come with the models that are traced.

    Raises `SambaError` for tensors that bear one name and differ, `sambac.CompileError` for what
    cannot be compiled.
    """
    import sambac

    require_one_meaning(graphs)
    group_optimizers(graphs)
    shared = {**_shared_ports(graphs), **_shared_states(graphs)}
    options = shared_options(wish, _memory(graphs))
    sources = [
        sambac.GraphSource(
            graph.name, graph.model, example_of(graph.call), _own_options(graph, options, wish)
        )
        for graph in graphs
    ]
    with ExitStack() as stack, torch.no_grad():
        for model in {id(graph.model): graph.model for graph in graphs}.values():
            stack.enter_context(without_values(model))
        program = sambac.compile_graphs(sources, options, shared=shared)
    return named_program(program, graphs, wish)


def _own_options(
    graph: TracedGraph, options: sambac.CompileOptions, wish: Wish
) -> sambac.CompileOptions | None:
    """Return the options of a graph that trains, None for those of all."""
    if not graph.optimizers:
        return None
    own = replace(wish, train=True, optimizers=graph.optimizers)
    return training_options(options, graph.model, graph.call, graph.traced, own)


def _shared_ports(graphs: Iterable[TracedGraph]) -> dict[str, str]:
    """Return the regions that inputs and outputs of several graphs, or of both kinds, share."""
    members: dict[str, dict[str, None]] = {}
    for graph in graphs:
        for ports in (graph.inputs, graph.outputs):
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
        for state, region in replace(graph, optimizers=several).optimizer_states.items():
            path, _, key = state.rpartition("__")
            owner = id(graph.states[path]) if path in graph.states else path
            found[f"{graph.name}.{state}"] = regions.setdefault((owner, key), region)
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
