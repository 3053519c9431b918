"""The heart of a session: compile a model, trace it against its PEF, run sections."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from .arguments import Inputs, Optimizers, check_mapping, listed
from .call import ForwardCall, Named, call_of, tensors_by_name
from .checked import checked, require
from .compiling import LossIndices, loss_numbers, save, wish_of
from .conversion import from_torch_model_
from .device import Device
from .distributed import checked_mode
from .errors import SambaError
from .graphs_device import prepare
from .hyperparameters import rates_left_out
from .kinds import FLAG, NAME, PATH
from .matching import is_inference, require_match
from .misfits import explained
from .names import model_name
from .output import output_path
from .pef_session import PefSession
from .pinned import mark_traced, use_pinned_memory
from .profiler import run_event
from .regions import build_in_regions
from .running import asked_for, selections
from .symbolic import SYMBOLIC, computing, switch
from .tensor import SambaTensor
from .tensor_table import TensorTable
from .tracing import Traced, trace
from .transfer import (
    buffers_of,
    default_gradients,
    fetched,
    gradients_by_name,
    parameters_of,
    states_of,
    to_device,
)

if TYPE_CHECKING:
    import numpy as np

    from sambarun import Selection
    from sambarun.selection import Reduction


class GraphSession(PefSession):
    """Compiles models into PEFs, and runs the one PEF that it has loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._take_defaults()
        self._tracing = False
        self.traced_tensors = TensorTable()
        self.buffer_dict = TensorTable()
        self._stepped: list[tuple[nn.Module, Optimizers]] = []
        self._outputs: tuple[SambaTensor, ...] = ()
        self._traced: tuple[nn.Module, ForwardCall] | None = None  # for messages

    def _take_defaults(self) -> None:
        """Be as nobody has told the session anything yet."""
        self.tracing = False
        self.data_parallel_mode = "normal"
        """How reductions overlap in runs that name no mode."""
        self.graphamp = True
        """Whether the precision that the options ask for is used."""
        self.options: Mapping[str, object] = {}
        """Options of `compile` and `trace_graph` where the call itself does not say."""

    @property
    def tracing(self) -> bool:
        """Whether a model is being traced.

        While an application sets it, operators on SambaTensors, modules that are called among
        them, describe their results instead of computing them: without values, with names.
        """
        return self._tracing or SYMBOLIC.wanted

    @tracing.setter
    def tracing(self, on: bool) -> None:
        require("tracing", on, FLAG)
        switch(on)

    # Compile, trace, run.

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
        config = {**self.options, **(config_dict or {})}
        if inference is not None:
            config["inference"] = inference
        if not self.graphamp:
            config["graphamp_preset"] = None
        path = output_path(config, name or model_name(model))
        from_torch_model_(model)
        with self._while_tracing():
            call = call_of(model, inputs)
            traced = trace(model, call)
            wish = wish_of(config, listed(optimizers), loss_indices, pef_metadata or {})
            traced.require_outputs(wish.loss_indices or ())
            if io_host_memory is not None:
                wish = replace(wish, io_host_memory=io_host_memory)
            program = build_in_regions(model, call, traced, wish)
        save(program, path)
        print(f"PEF file {path.resolve()} created")
        return str(path)

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
        pef = pef or str({**self.options, **(config_dict or {})}.get("pef") or "")
        with self._opening():
            device = self._load(pef) if pef else self.device
            self.inference = is_inference(device, optimizers)
            if self.inference:
                model.requires_grad_(False)
            with self._while_tracing():
                call = call_of(model, inputs)
                traced = trace(model, call)
            traced.require_outputs(losses or ())
            if device is not None:
                require_match(device, model, call, traced, optimizers, mapping)
                if transfer_device:
                    self._put(device, states_of(model, optimizers))
                if init_output_grads:
                    device.start_from(default_gradients(traced, losses, device))
                if distlearn_config and not self.inference:
                    self._replicas.meet(device)
        self._remember(model, traced, call.tensors)
        self._traced = model, call
        self._follow(model, optimizers)
        return traced.outputs

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
        with self._event(run_event(section_types) if self.profiler.enabled else ""):
            device = self._loaded()
            device.choose(graph_name)
            self._take(device, input_tensors, grad_of_outputs)
            learns = not (self.inference or device.infers)
            mode = checked_mode(data_parallel_mode or self.data_parallel_mode)
            shared = data_parallel and learns
            reduction = self._replicas.reduction(device, mode) if shared else "none"
            calls, trains = (run_from_call_id, run_until_call_id), train and learns
            chosen = self._chosen(section_types, section_ids, calls, trains, reduction)
            try:
                results = self._run(device, chosen, hyperparam_dict, train=train)
            except SambaError as error:
                raise explained(error, self._traced, input_tensors) from error
            return fetched(device, output_tensors, results, self._getting())

    def _take(
        self, device: Device, inputs: Inputs, gradients: Sequence[Tensor | None] | None
    ) -> None:
        """Send what a run is given to the device: inputs, and gradients of outputs."""
        if inputs is not None:
            pinned = use_pinned_memory()
            with self._event("PyRT_SET_PINNED_INPUT_TENSORS" if pinned else "PyRT_SET_TENSORS"):
                device.hold(tensors_by_name(inputs))
        if gradients is not None:
            device.hold(gradients_by_name(gradients, self._outputs_of(device), device))

    def _outputs_of(self, device: Device) -> tuple[SambaTensor, ...]:
        """Return the traced outputs of the graph that `device` runs."""
        return self._outputs

    def _getting(self) -> AbstractContextManager[None]:
        """Return what measures copies to the host: each process makes those of its replica."""
        return self._event("PyRT_GET_TENSORS_GATHER" if self._replicas.met else "PyRT_GET_TENSORS")

    def _chosen(
        self,
        types: str | Sequence[str],
        ids: Sequence[int | Sequence[int]],
        calls: tuple[int | None, int | None],
        train: bool,
        reduction: Reduction,
    ) -> tuple[Selection, ...]:
        """Return the runs that were asked for; looked up, as training asks the same each time."""
        device = self._loaded()
        inference = self.inference or device.infers
        asked_by = _key((types, ids))
        key = (asked_by, calls, train, inference, reduction, device.graph)
        found = self._selections.get(key)
        if found is None:
            asked = replace(asked_for(types, ids, *calls), reduction=reduction, graph=device.graph)
            found = selections(
                asked, device.program, device.calls, train=train, inference=inference
            )
            self._replicas.tell_if_apart(device.program, found)
            with self._event("SAMBA_INIT_RUNTIME"):
                prepare(device, found)
            if asked_by is not None:
                self._selections[key] = found
        return found

    def _send(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy tensors to the device; to those of all processes what process 0 has, if they met."""
        self._put(self._loaded(), tensors)
        if self._replicas.met:
            self._replicas.meet(self._loaded())

    def _put(self, device: Device, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy tensors to the device of this process, and measure it."""
        with self._event("PyRT_SET_TENSORS"):
            to_device(device, tensors)

    def _run(
        self,
        device: Device,
        chosen: tuple[Selection, ...],
        given: Mapping[str, float] | None,
        *,
        train: bool,
    ) -> dict[str, np.ndarray]:
        """Run what was chosen; `given` are hyperparameters."""
        hyperparameters = self._hyperparameters()
        dropout = None if chosen[0].evaluates else train
        settings = hyperparameters.settings(given, train=dropout)
        with self._event("PyRT_RUN"):
            results = device.run(chosen[0], settings, self.runtime_profile)
            for part in chosen[1:]:  # what was set stays, and a seed given again would begin anew
                results |= device.run(part, {}, self.runtime_profile)
        hyperparameters.made()
        return results

    def _load(self, pef: str) -> Device:
        """Load a PEF in place of the one before."""
        self._clear()
        return self._open(pef)

    def _clear(self) -> None:
        """Forget the PEF and what was traced."""
        self._close()
        self.traced_tensors = TensorTable()
        self.buffer_dict = TensorTable()
        self._stepped = []
        self._outputs = ()
        self._traced = None

    @contextmanager
    def _while_tracing(self) -> Iterator[None]:
        before, self._tracing = self._tracing, True
        try:
            with computing():
                yield
        finally:
            self._tracing = before

    def _follow(self, model: nn.Module, optimizers: Optimizers) -> None:
        """Keep the optimizers of a model; their numbers count from the next run on."""
        self._stepped.append((model, optimizers))
        if self.hyperparameters is not None:
            self.hyperparameters.follow(listed(optimizers))
            self.hyperparameters.left_out = rates_left_out(model)

    def _remember(self, model: nn.Module, traced: Traced, inputs: Iterable[Named]) -> None:
        """Keep the tensors of a traced model, by name."""
        model.__dict__["output_tensors"] = self._outputs = traced.outputs
        self.buffer_dict |= (buffers := {n: SambaTensor(b, name=n) for n, b in buffers_of(model)})
        parameters = {n: p for n, p in parameters_of(model) if isinstance(p, SambaTensor)}
        outputs = {output.sn_name: output for output in traced.outputs}
        named = {item.tensor.sn_name: item.tensor for item in inputs}
        self.traced_tensors |= {**parameters, **buffers, **named, **outputs}
        mark_traced([*named, *(output.sn_grad_name for output in traced.outputs)])


_PLAIN = (str, int)


def _key(given: object) -> Hashable:
    """Return what is equal for equal lists of texts and numbers, None for anything else.

    Types are in it, as 1 and True are one as keys. An iterator has no key: when it is gone another
    may have its identity, and its text.
    """
    kind = type(given)
    if kind in _PLAIN:
        return kind, given
    if kind is not list and kind is not tuple:
        return None
    parts = tuple(map(_key, cast("Sequence[object]", given)))
    return None if None in parts else (kind, parts)
