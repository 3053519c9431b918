"""The compiler's side of a session: PEFs are made of models, and of the graphs that were traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import instance
from sambaflow.samba.arguments.options import Inputs, LossIndices, Optimizers, listed
from sambaflow.samba.errors import SambaError
from sambaflow.samba.graph import SambaGraph
from sambaflow.samba.modes import Modes
from sambaflow.samba.names import model_name
from sambaflow.samba.tensors.conversion import from_torch_model_
from sambaflow.samba.trace.call import call_of
from sambaflow.samba.trace.models import TracedModels
from sambaflow.samba.trace.traced_graph import find_traced, require_one_meaning
from sambaflow.samba.trace.tracing import trace

from .output import output_path

_GRAPH = instance(SambaGraph, "a SambaGraph, such as FwdGraph")


class CompilerSide:
    """Compiles models as `modes` say; `graphs` are of what is among `models`, in this order."""

    def __init__(self, modes: Modes, models: TracedModels) -> None:
        self.graphs: dict[str, SambaGraph] = {}
        self._modes = modes
        self._models = models

    @checked("SambaSession.compile")
    def compile(
        self,
        model: nn.Module,
        inputs: Inputs,
        optimizers: Optimizers = None,
        name: str = "",
        loss_indices: LossIndices = None,
        io_host_memory: bool | None = None,
        *,
        config_dict: Mapping[str, object] | None = None,
        pef_metadata: Mapping[str, object] | None = None,
        inference: bool | None = None,
    ) -> str:
        """Compile `model` with its optimizers into a PEF, and return the path of the file.

        `inputs` are what `forward` is called with: a tuple, with None and nested lists in it, a
        dict by argument, or one tensor; their shapes and types are compiled in. `config_dict` are
        the options of the command line. The file is `<output_folder>/<name>/<name>.pef`, with a log
        beside it, called as `config_dict["pef_name"]` says, else `name`, else the model.
        `loss_indices` are the outputs the backward pass starts from; without them those that are
        single numbers; if none is, those that come from a loss function; else all that have
        gradients. `io_host_memory` places inputs and outputs in host memory. `pef_metadata` is
        stored in the PEF.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        config = self._modes.config(config_dict)
        if inference is not None:
            config["inference"] = inference
        if not self._modes.graphamp:
            config["graphamp_preset"] = None
        path = output_path(config, name or model_name(model))
        from_torch_model_(model)
        with self._modes.while_tracing():
            call = call_of(model, inputs)
            traced = trace(model, call)
            # The compiler takes long to load: most processes only run.
            from .requests import request_of
            from .writing import write_model

            request = request_of(
                config,
                listed(optimizers),
                loss_indices,
                pef_metadata or {},
                io_host_memory=bool(io_host_memory),
            )
            return write_model(model, call, traced, request, path)

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
        known = self._models.traced_graphs()
        found = [find_traced(known, n, graph.stop) for n, graph in self.graphs.items()]
        config = self._modes.config(config_dict)
        if inference or config.get("inference"):
            found = [replace(graph, optimizers=()) for graph in found]
        if samba_only:
            require_one_meaning(found)
            return None
        path = output_path(config, name or "_".join(self.graphs))
        # As in `compile`: the compiler takes long to load.
        from .writing import write_graphs

        return write_graphs(found, config, pef_metadata or {}, path)
