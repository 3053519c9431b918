"""The session of an application: models are compiled, traced against their PEF, and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from .arguments.checked import checked
from .arguments.kinds import NAME, PATH, instance
from .arguments.options import (
    Inputs,
    LossIndices,
    Optimizers,
    check_mapping,
    checked_mode,
    listed,
    loss_numbers,
)
from .compile.output import output_path
from .errors import SambaError
from .graph import SambaGraph
from .modes import SessionModes
from .names import model_name
from .profiler import measuring, run_event
from .session_memory import SessionMemory
from .tensors import pinned
from .tensors.conversion import from_torch_model_
from .tensors.current import attach
from .tensors.tensor import SambaTensor
from .trace.call import call_of
from .trace.misfits import explained
from .trace.states import states_of
from .trace.traced_graph import TracedGraph, find_traced, require_one_meaning
from .trace.tracing import trace

_GRAPH = instance(SambaGraph, "a SambaGraph, such as FwdGraph")


class SambaSession(SessionModes, SessionMemory):
    """Compiles models into PEFs and runs them; `sambaflow.samba.session` is the one to use.

    It holds what was traced and the PEF that is loaded. `pef_path` is a PEF to load at once;
    without one `trace_graph` loads it.
    """

    @checked(pef_path=PATH)
    def __init__(self, pef_path: str = "") -> None:
        SessionModes.__init__(self)
        SessionMemory.__init__(self)
        if pef_path:
            self._load(pef_path)

    @staticmethod
    @checked(pef_path=PATH)
    def reset(pef_path: str = "") -> None:
        """Begin anew: forget the PEF, all traced tensors, options and pinned memory.

        `pef_path` is loaded if it is given. Profiles that run go on, to measure that too; so does
        the lazy building of modules.
        """
        session._close()
        session._forget()
        session._take_defaults()
        pinned.forget()
        if pef_path:
            session._load(pef_path)

    # Compile.

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
        config = self._config(config_dict)
        if inference is not None:
            config["inference"] = inference
        if not self.graphamp:
            config["graphamp_preset"] = None
        path = output_path(config, name or model_name(model))
        from_torch_model_(model)
        with self._while_tracing():
            call = call_of(model, inputs)
            traced = trace(model, call)
            # The compiler takes long to load: most processes only run.
            from .compile.requests import request_of
            from .compile.writing import write_model

            request = request_of(config, listed(optimizers), loss_indices, pef_metadata or {})
            if io_host_memory is not None:
                request = replace(request, io_host_memory=io_host_memory)
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
        config = self._config(config_dict)
        if inference or config.get("inference"):
            found = [replace(graph, optimizers=()) for graph in found]
        if samba_only:
            require_one_meaning(found)
            return None
        path = output_path(config, name or "_".join(self.graphs))
        from .compile.writing import write_graphs

        return write_graphs(found, config, pef_metadata or {}, path)

    # Trace.

    @checked("SambaSession.trace_graph", pef=PATH.or_none(), mapping=None)
    def trace_graph(
        self,
        model: nn.Module,
        inputs: Inputs,
        optim: Optimizers = None,
        init_output_grads: bool = True,
        loss_indices: LossIndices = None,
        pef: str = "",
        mapping: str | None = None,
        *,
        config_dict: Mapping[str, object] | None = None,
        transfer_device: bool = True,
        distlearn_config: object = None,
        data_parallel_mode: str = "normal",
    ) -> tuple[SambaTensor, ...]:
        """Load the PEF of `model` and return its outputs, also kept as `model.output_tensors`.

        The model is traced and compared with the PEF. With `transfer_device` parameters, buffers
        and state of optimizers are copied to the device. Without an optimizer the model is used for
        inference: its parameters want no gradients any more. `config_dict` may have the `pef`.
        `data_parallel_mode` is that of runs which name none. With any `distlearn_config` processes
        that train together meet here, and get what process 0 has; else in the first run with
        `data_parallel`. Raises `SambaError` with all that differs from the PEF, as a `mapping`.
        """
        from_torch_model_(model)
        check_mapping(mapping)
        self.data_parallel_mode = checked_mode(data_parallel_mode)
        optimizers, losses = listed(optim), loss_numbers(loss_indices)
        pef = pef or str(self._config(config_dict).get("pef") or "")
        with self._opening():
            loaded = self._load(pef) if pef else self._pef
            evaluates = loaded.only_evaluates(optimizers) if loaded else not optimizers
            if evaluates:
                model.requires_grad_(False)
            with self._while_tracing():
                call = call_of(model, inputs)
                traced = trace(model, call)
            traced.require_outputs(losses or ())
            if loaded is not None:
                loaded.fit(model, call, traced, optimizers, mapping)
                if transfer_device:
                    loaded.put(states_of(model, optimizers))
                if init_output_grads:
                    loaded.start_from(traced, losses)
                if distlearn_config and not evaluates:
                    loaded.meet()
        self._models.follow(model, call, traced, optimizers)
        if loaded is not None:
            loaded.follow(model, optimizers)
        return traced.outputs

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
        known = self._models.graphs
        if any(prefix == before and graph is found.model for before, found in known):
            raise SambaError(
                f"trace_multigraph has traced this model before, with trace_prefix={trace_prefix!r}"
                f"; trace it once for each graph, each time with a prefix of its own"
            )
        from_torch_model_(graph)
        chosen = listed(optimizers)
        with self._while_tracing(), torch.set_grad_enabled(bool(chosen)):
            call = call_of(graph, inputs)
            traced = trace(graph, call, prefix)
        known.append((prefix, TracedGraph(graph, call, traced, optimizers=chosen, mapping=mapping)))
        self._models.remember(graph, traced, call.tensors)
        return traced.outputs

    @checked(pef=PATH)
    def init_multigraph_runtime(self, pef: str, transfer_device: bool = True) -> None:
        """Load a PEF of several graphs, after the models were traced with `trace_multigraph`.

        With `transfer_device` parameters and buffers of all models, and the state of optimizers,
        are copied to the device. Raises `SambaError` with the list of all in which the PEF differs
        from the traced models.
        """
        traced = self._models.traced_graphs()
        if not traced:
            raise SambaError(
                "no graph was traced; call samba.utils.trace_multigraph(model, inputs, ...) for "
                "each before init_multigraph_runtime"
            )
        require_one_meaning(traced)
        wanted = {name: graph.stop for name, graph in self.graphs.items()}
        with self._opening():
            self._open(pef).follow_graphs(wanted, transfer=transfer_device)
        self._models.stepped += [(graph.model, graph.optimizers) for graph in traced]

    # Run.

    @checked(
        "SambaSession.run",
        output_tensors=None,
        hyperparam_dict=None,
        section_ids=None,
        section_types=None,
        grad_of_outputs=None,
        graph_name=NAME.or_none(),
    )
    def run(
        self,
        input_tensors: Inputs = None,
        output_tensors: Sequence[SambaTensor] | SambaTensor = (),
        hyperparam_dict: Mapping[str, float] | None = None,
        data_parallel: bool = False,
        reduce_on_rdu: bool = False,
        section_ids: Sequence[int | Sequence[int]] = (),
        section_types: str | Sequence[str] = (),
        run_until_call_id: int | None = None,
        run_from_call_id: int | None = None,
        data_parallel_mode: str | None = None,
        train: bool = True,
        *,
        grad_of_outputs: Sequence[Tensor | None] | None = None,
        graph_name: str = "",
    ) -> tuple[SambaTensor, ...]:
        """Run sections of the PEF, all of its schedule by default, and return `output_tensors`.

        Inputs are matched by `sn_name`; those left out keep the values of an earlier run. Section
        ids, section types (in any case) and calls select what runs; types and ids run in the order
        given. The call `run_until_call_id` itself is not run: a run from it goes on there.

        `hyperparam_dict` is kept until it is set anew or the optimizer's own number changes; names
        that the PEF lacks are ignored with one warning. Without `train` dropout is off, and FWD
        alone evaluates, with running statistics. A model traced without optimizer always does.

        `grad_of_outputs` has the gradient of each traced output; None is 1 for a single number, as
        in torch, and 0 for others. Without it gradients stay as they are. With `data_parallel` they
        are averaged over processes: REDUCE sections run, as `data_parallel_mode` says (normal,
        inorder, optimal). `reduce_on_rdu` changes nothing. `graph_name` is for PEFs of several.

        Raises `SambaError` before `trace_graph`, for unknown names, ids beside types, and misfits.
        """
        pef = self._loaded()
        with measuring(self.profiler, run_event(section_types) if self.profiler.enabled else ""):
            pef.choose(graph_name)
            pef.take(input_tensors, grad_of_outputs)
            mode = checked_mode(data_parallel_mode or self.data_parallel_mode)
            sections = (section_types, section_ids, run_from_call_id, run_until_call_id)
            chosen = pef.chosen(sections, mode if data_parallel else None, train=train)
            try:
                results = pef.run(chosen, hyperparam_dict, train=train)
            except SambaError as error:
                raise explained(error, self._models.last, input_tensors) from error
            return pef.fetched(output_tensors, results)


session = SambaSession()
attach(session)
