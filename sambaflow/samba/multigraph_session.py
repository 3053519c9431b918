"""What a session does with several graphs: trace each, compile them together, load the PEF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from .arguments import Inputs, Optimizers, check_mapping, listed
from .call import call_of
from .checked import checked
from .compiling import save, wish_of
from .conversion import from_torch_model_
from .device import Device
from .errors import SambaError
from .graph import SambaGraph
from .graph_session import GraphSession
from .graphs_device import GraphsDevice
from .hyperparameters import rates_left_out
from .kinds import PATH, instance
from .matching import require_graphs_match
from .multigraph import build_graphs
from .output import output_path
from .tensor import SambaTensor
from .traced_graph import TracedGraph, find_traced, group_optimizers, require_one_meaning
from .tracing import trace
from .transfer import states_of

_GRAPH = instance(SambaGraph, "a SambaGraph, such as FwdGraph")


class MultigraphSession(GraphSession):
    """Compiles several graphs into one PEF, and runs them by name; each may train or infer."""

    def __init__(self) -> None:
        super().__init__()
        self.graphs: dict[str, SambaGraph] = {}
        """The graphs that `compile_multigraph` compiles, in this order."""
        self._traced_graphs: list[tuple[str, TracedGraph]] = []

    @checked(graph=_GRAPH)
    def add_graph(self, graph: SambaGraph, overwrite: bool = False) -> None:
        """Add `graph` to those that `compile_multigraph` compiles, behind the ones before.

        With `overwrite` it takes the place of one of the same name, and is the last then. Raises
        `SambaError` without `overwrite` if there is one.
        """
        known = self.graphs.get(graph.name)
        if known is not None and not overwrite:
            raise SambaError(
                f"two graphs are called '{graph.name}': {known} was added, and now {graph}; give "
                f"each its own name, or say overwrite=True"
            )
        self.graphs.pop(graph.name, None)
        self.graphs[graph.name] = graph

    @checked("SambaSession.trace_multigraph", mapping=None)
    def trace_multigraph(
        self,
        graph: nn.Module,
        inputs: Inputs,
        optimizers: Optimizers = None,
        trace_prefix: str | None = None,
        mapping: str | None = "",
    ) -> tuple[SambaTensor, ...]:
        """Trace a model for a graph of its own, and return its outputs.

        The names of the outputs begin with `trace_prefix`. Parameters keep theirs, so that graphs
        traced from one model share them: what a graph with `optimizers` learns, the others read.
        Its backward pass starts from the outputs that `compile` would choose, with ones. `mapping`
        is decided by `compile_multigraph`; one that is given must be that of the PEF.

        Raises `SambaError` for a model traced twice with one prefix.
        """
        check_mapping(mapping)
        prefix = f"{trace_prefix}__" if trace_prefix else ""
        if any(prefix == before and graph is known.model for before, known in self._traced_graphs):
            raise SambaError(
                f"trace_multigraph has traced this model before, with trace_prefix={trace_prefix!r}"
                f"; trace it once for each graph, each time with a prefix of its own"
            )
        from_torch_model_(graph)
        chosen = listed(optimizers)
        with self._while_tracing(), torch.set_grad_enabled(bool(chosen)):
            call = call_of(graph, inputs)
            traced = trace(graph, call, prefix)
        found = TracedGraph(graph, call, traced, optimizers=chosen, mapping=mapping)
        self._traced_graphs.append((prefix, found))
        self._remember(graph, traced, call.tensors)
        return traced.outputs

    @checked("SambaSession.compile_multigraph")
    def compile_multigraph(
        self,
        name: str = "",
        samba_only: bool = False,
        *,
        config_dict: Mapping[str, object] | None = None,
        pef_metadata: Mapping[str, object] | None = None,
        inference: bool = False,
    ) -> str | None:
        """Compile the graphs of `add_graph` into one PEF, and return the path of the file.

        Tensors of one `sn_region_name`, which is their name unless another was given, are one in
        all graphs: weights, and inputs and outputs, which keep their content between runs. The
        file holds no weights; they come with the models that are traced before it is run. With
        `samba_only` graphs are only checked, and None is returned. Graphs traced with optimizers
        train, except for `inference`. Options and the place of the file are those of `compile`.

        Raises `SambaError` without graphs, for graphs that were not traced and for tensors of one
        name that differ, `sambac.CompileError` for what cannot be compiled.
        """
        if not self.graphs:
            raise SambaError("there are no graphs to compile; add them with session.add_graph")
        found = [find_traced(self._known(), n, graph.stop) for n, graph in self.graphs.items()]
        config = {**self.options, **(config_dict or {})}
        if inference or config.get("inference"):
            found = [replace(graph, optimizers=()) for graph in found]
        if samba_only:
            require_one_meaning(found)
            return None
        path = output_path(config, name or "_".join(self.graphs))
        wish = wish_of({**config, "inference": True}, (), None, pef_metadata or {})
        program = build_graphs(found, wish)
        save(program, path)
        print(f"PEF file {path.resolve()} created")
        return str(path)

    @checked(pef=PATH)
    def init_multigraph_runtime(self, pef: str, transfer_device: bool = True) -> None:
        """Load a PEF of several graphs, after the models were traced with `trace_multigraph`.

        With `transfer_device` parameters and buffers of all models, and the state of optimizers,
        are copied to the device. Raises `SambaError` with the list of all in which the PEF differs
        from the traced models.
        """
        traced = self._known()
        if not traced:
            raise SambaError(
                "no graph was traced; call samba.utils.trace_multigraph(model, inputs, ...) for "
                "each before init_multigraph_runtime"
            )
        require_one_meaning(traced)
        with self._opening():
            device = self._open(pef)
            require_graphs_match(device, traced, self.graphs)
            learning = {
                name: find_traced(traced, name, graph.stop).optimizers
                for name, graph in self.graphs.items()
            }
            hyperparameters = self._hyperparameters()
            hyperparameters.follow(group_optimizers(traced), learning)
            hyperparameters.left_out = tuple(
                rate for graph in traced if graph.optimizers for rate in rates_left_out(graph.model)
            )
            self.inference = not device.trains
            if transfer_device:
                for graph in traced:
                    self._put(device, states_of(graph.model, graph.optimizers))
            assert isinstance(device, GraphsDevice)
            device.evaluate(
                [output.sn_name for output in graph.traced.outputs]
                for graph in traced
                if not graph.optimizers
            )
        device.start_from({})
        for graph in traced:
            self._stepped.append((graph.model, graph.optimizers))

    def _outputs_of(self, device: Device) -> tuple[SambaTensor, ...]:
        """Return the traced outputs of the graph that `device` runs."""
        if not isinstance(device, GraphsDevice):
            return super()._outputs_of(device)
        here = device.returned
        found = (graph.traced.outputs for graph in self._known())
        return next(each for each in found if here <= {output.sn_name for output in each})

    def _known(self) -> list[TracedGraph]:
        return [graph for _, graph in self._traced_graphs]

    def _clear(self) -> None:
        """Forget the PEF, the graphs and what was traced."""
        super()._clear()
        self.graphs = {}
        self._traced_graphs = []
