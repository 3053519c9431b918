"""The session of an application: models are compiled, traced against their PEF, and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Never, ParamSpec

import torch
from torch import Tensor, nn

from sambaflow.submodules import refuse

from . import lazy_param
from .arguments.checked import checked, require
from .arguments.kinds import CALLABLE, NAME, PATH
from .arguments.options import (
    Inputs,
    LossIndices,
    Optimizers,
    check_mapping,
    checked_mode,
    listed,
    loss_numbers,
)
from .compile.compiler_side import CompilerSide
from .errors import SambaError
from .graph import SambaGraph
from .holding import HeldValue, by_class, held, held_by_class
from .modes import Modes
from .parallel import exits
from .profiler import Profiler, measuring, run_event
from .run.device_side import DeviceSide
from .run.runtime_profile import RuntimeProfile
from .tensors import pinned
from .tensors.conversion import from_torch_model_
from .tensors.current import DeviceMemory, attach
from .tensors.tensor import SambaTensor
from .tensors.tensor_table import TensorTable
from .trace.call import call_of
from .trace.misfits import explained
from .trace.models import TracedModels
from .trace.traced_graph import TracedGraph, require_one_meaning
from .trace.tracing import trace

if TYPE_CHECKING:
    from .run.device import SambaDevice
    from .run.loaded import LoadedPef

P = ParamSpec("P")


def _modes(of: SambaSession) -> Modes:
    return of._modes


def _models(of: SambaSession) -> TracedModels:
    return of._models


def _compiler(of: SambaSession) -> CompilerSide:
    return of._compiler


def _device(of: SambaSession) -> DeviceSide:
    return of._device


_ABSENT = {
    "ctx": "run(grad_of_outputs=...) starts the backward pass from gradients of the application; "
    "update_tensor writes tensors, and get_tensors_by_name reads them"
}
"""Attributes of other versions, and what there is instead."""


class SambaSession:
    """Compiles models into PEFs and runs them; `sambaflow.samba.session` is the one to use.

    Tensors ask that one, the process's, for what the device holds (`sn_data`).

    It holds four sides, and what needs one of them alone is that one's: modes, the models that were
    traced, the compiler, and the device with the PEF that is loaded. `pef_path` is a PEF to load at
    once; without one `trace_graph` loads it.
    """

    @checked(pef_path=PATH)
    def __init__(self, pef_path: str = "") -> None:
        self._modes = Modes()
        self._models = TracedModels()
        self._compiler = CompilerSide(self._modes, self._models)
        self._device = DeviceSide(self._models)
        if pef_path:
            self._load(pef_path)

    def __getattr__(self, name: str) -> Never:
        """Raise `AttributeError`, which says what there is instead, or may be meant."""
        refuse("the session", name, _ABSENT, dir(type(self)))

    @by_class
    @checked(pef_path=PATH)
    def reset(self, pef_path: str = "") -> None:
        """Begin anew: forget the PEF, all traced tensors, options and pinned memory.

        `pef_path` is loaded if it is given. Profiles that run go on, to measure that too; so does
        the lazy building of modules.
        """
        self._forget()
        self._modes.take_defaults()
        pinned.forget()
        if pef_path:
            self._load(pef_path)

    # Modes.

    options = HeldValue[Mapping[str, object]](_modes, "options")
    graphamp = HeldValue[bool](_modes, "graphamp")
    data_parallel_mode = HeldValue[str](_modes, "data_parallel_mode")
    dynamic_dims = HeldValue[Mapping[str, object]](_modes, "dynamic_dims")
    tracing = HeldValue[bool](_modes, "tracing")
    _context_directives = HeldValue[Mapping[str, object]](_modes, "directives")

    setup = held(_modes, Modes.setup)
    use_static_functional = held(_modes, Modes.use_static_functional)
    disable_graphamp = held(_modes, Modes.disable_graphamp)
    add_aux_tensor = held(_modes, Modes.add_aux_tensor)
    _add_directives = held(_modes, Modes.add_directives)

    # What holds for the whole process.

    use_legacy_names = staticmethod(Modes.use_legacy_names)
    enable_lazy_param = staticmethod(lazy_param.enable_lazy_param)
    disable_lazy_param = staticmethod(lazy_param.disable_lazy_param)
    use_lazy_param = staticmethod(lazy_param.use_lazy_param)
    reset_random_generator = staticmethod(lazy_param.reset_random_generator)
    enable_pinned_memory = staticmethod(pinned.enable_pinned_memory)
    disable_pinned_memory = staticmethod(pinned.disable_pinned_memory)
    use_pinned_memory = staticmethod(pinned.use_pinned_memory)

    @staticmethod
    def atexit_register(func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have `func` called before the process ends, also where `use_abexit` ends it."""
        require("func", func, CALLABLE)
        exits.atexit_register(func, *args, **kwargs)

    @staticmethod
    def use_abexit(func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Never:
        """Run an application, and end the process without waiting for others, however it ends."""
        require("func", func, CALLABLE)
        exits.use_abexit(func, *args, **kwargs)

    # Compile.

    graphs = HeldValue[dict[str, SambaGraph]](_compiler, "graphs")

    compile = held(_compiler, CompilerSide.compile)
    add_graph = held(_compiler, CompilerSide.add_graph)
    compile_multigraph = held(_compiler, CompilerSide.compile_multigraph)

    # What was traced.

    traced_tensors = HeldValue[TensorTable](_models, "tensors")
    _traced_tensors = traced_tensors
    buffer_dict = HeldValue[TensorTable](_models, "buffers")
    optim_dict = HeldValue[TensorTable](_models, "optimizer_states")

    get_samba_tensor_by_name = held(_models, TracedModels.get_samba_tensor_by_name)
    update_tensor = held(_models, TracedModels.update_tensor)
    is_valid_aux_tensor_name = held(_models, TracedModels.is_valid_aux_tensor_name)
    note_converted = held(_models, TracedModels.note_converted)
    note_buffer = held(_models, TracedModels.note_buffer)

    # What the device has.

    device: HeldValue[SambaDevice | None] = HeldValue(_device, "device")
    memory = HeldValue[DeviceMemory](_device, "memory")
    profiler = HeldValue[Profiler](_device, "profiler")
    runtime_profile = HeldValue[RuntimeProfile](_device, "runtime_profile")

    get_argin_names = held(_device, DeviceSide.get_argin_names)
    get_dropout_rate_argin_names = held(_device, DeviceSide.get_dropout_rate_argin_names)
    get_dropout_seed_argin_names = held(_device, DeviceSide.get_dropout_seed_argin_names)
    get_section_types = held(_device, DeviceSide.get_section_types)
    get_weight_names = held(_device, DeviceSide.get_weight_names)
    get_tensors = held(_device, DeviceSide.get_tensors)
    get_tensors_by_name = held(_device, DeviceSide.get_tensors_by_name)
    to_device = held(_device, DeviceSide.to_device)
    fetch_states = held(_device, DeviceSide.fetch_states)
    to_cpu = held_by_class(_device, DeviceSide.to_cpu)
    to_cpu_ = held_by_class(_device, DeviceSide.to_cpu_)
    to_rdu = held_by_class(_device, DeviceSide.to_rdu)
    sync_buffers_to_cpu = held_by_class(_device, DeviceSide.sync_buffers_to_cpu)
    sync_buffers_to_rdu = held_by_class(_device, DeviceSide.sync_buffers_to_rdu)
    samba_profile = held(_device, DeviceSide.samba_profile)
    start_samba_profile = held(_device, DeviceSide.start_samba_profile)
    end_samba_profile = held(_device, DeviceSide.end_samba_profile)
    start_runtime_profile = held(_device, DeviceSide.start_runtime_profile)
    end_runtime_profile = held(_device, DeviceSide.end_runtime_profile)

    # Trace: models meet the PEF that is loaded.

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

        The model is traced and compared with the PEF. With `transfer_device` states are copied to
        the device. Without an optimizer the model infers: its parameters want no gradients then.
        `config_dict` may have `pef`, `mapping`, and `inference`, to leave optimizers out;
        `data_parallel_mode` is that of runs without one. Processes meet here with
        `distlearn_config`, else in their first such run. Raises `SambaError` with all that differs
        from the PEF.
        """
        config = self._modes.config(config_dict)
        mapping = check_mapping(mapping) or check_mapping((config_dict or {}).get("mapping"))
        from_torch_model_(model)
        self._modes.data_parallel_mode = checked_mode(data_parallel_mode)
        optimizers, losses = _used(optim, config), loss_numbers(loss_indices)
        with self._device.opening():
            loaded = self._wanted(pef or config.get("pef"))
            evaluates = loaded.only_evaluates(optimizers) if loaded else not optimizers
            with self._modes.while_tracing():
                call = call_of(model, inputs)
                traced = trace(model, call, infers=evaluates)
            if evaluates:
                model.requires_grad_(False)
            traced.require_outputs(losses or ())
            if loaded is not None:
                loaded.fit(model, call, traced, optimizers, mapping)
                if transfer_device:
                    loaded.put_states(model, optimizers)
                if init_output_grads:
                    loaded.start_from(traced, losses)
                if distlearn_config and not evaluates:
                    loaded.meet()
        self._models.follow(model, call, traced, optimizers)
        if loaded is not None:
            loaded.follow(model, traced, optimizers)
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
        with self._modes.while_tracing():
            call = call_of(graph, inputs)
            traced = trace(graph, call, prefix, infers=not chosen)
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
        wanted = {name: graph.stop for name, graph in self._compiler.graphs.items()}
        with self._device.opening():
            self._device.open(pef).follow_graphs(wanted, transfer=transfer_device)
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
        Runs of several threads take turns.

        Raises `SambaError` before `trace_graph`, for unknown names, ids beside types, and misfits.
        """
        pef = self._device.loaded()
        profiler = self._device.profiler
        event = run_event(section_types) if profiler.enabled else ""
        with pef.alone, measuring(profiler, event):
            pef.choose(graph_name)
            pef.take(input_tensors, grad_of_outputs)
            mode = checked_mode(data_parallel_mode or self._modes.data_parallel_mode)
            sections = (section_types, section_ids, run_from_call_id, run_until_call_id)
            chosen = pef.chosen(sections, mode if data_parallel else None, train=train)
            try:
                results = pef.run(chosen, hyperparam_dict, train=train)
            except SambaError as error:
                raise explained(error, self._models.last, input_tensors) from error.__cause__
            return pef.fetched(output_tensors, results)

    def _wanted(self, pef: object) -> LoadedPef | None:
        """Load `pef`, or return the one that is there where none is named."""
        return self._load(str(pef)) if pef else self._device.pef

    def _load(self, pef: str) -> LoadedPef:
        """Load a PEF in place of the one before, and of what was traced for that."""
        self._forget()
        return self._device.open(pef)

    def _forget(self) -> None:
        """Forget the PEF, and what was traced for it."""
        self._device.close()
        self._models.forget()
        self._compiler.graphs = {}


def _used(optim: Optimizers, config: Mapping[str, object]) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers that are given, none where the options are of inference."""
    return () if config.get("inference") else listed(optim)


session = SambaSession()
attach(session)
