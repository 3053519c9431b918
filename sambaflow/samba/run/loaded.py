"""A PEF that a session has loaded: its device, hyperparameters and processes, and runs of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from sambaflow.samba import profiler as events
from sambaflow.samba.arguments.options import Inputs, ReductionMode
from sambaflow.samba.errors import SambaError
from sambaflow.samba.profiler import Profiler, measuring
from sambaflow.samba.tensors.pinned import use_pinned_memory
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.trace.call import ForwardCall, tensors_by_name
from sambaflow.samba.trace.models import (
    TracedModels,
    buffers_of,
    parameter_names,
    parameters_of,
)
from sambaflow.samba.trace.module_settings import Settings
from sambaflow.samba.trace.traced_graph import find_traced, group_optimizers
from sambaflow.samba.trace.tracing import Traced
from sambahost.models import FreezeWatch
from sambarun import Selection
from sambarun.turns import Mutex

from .asked import SectionsAsked, SectionsNamed, Selector
from .device import SambaDevice, load_device
from .hyperparameters import Hyperparameters
from .matching import is_inference, require_graphs_match, require_match
from .optimizer_matching import learning
from .runtime_profile import RuntimeProfile
from .settings_matching import SettingsWatch, tell_other_settings
from .transfer import (
    GradientsWatch,
    Replicas,
    default_gradients,
    fetched,
    gradients_by_name,
    require_known,
    states_to_device,
    states_to_host,
    to_device,
    to_host,
)

_INSIDE = (
    "session.run was called by something that another run of the session waits for, such as a "
    "signal's handler; let that run end first"
)


class LoadedPef:
    """The PEF at `path`, loaded; `models` are what is traced against it.

    `profiler` measures what the host does, `profile` the sections.
    """

    def __init__(
        self, path: str, models: TracedModels, profiler: Profiler, profile: RuntimeProfile
    ) -> None:
        self._profiler, self._profile, self._models = profiler, profile, models
        with measuring(profiler, events.SET_PEF):
            self.device: SambaDevice = load_device(path)
        self.hyperparameters = Hyperparameters(self.device.program)
        self._watch = FreezeWatch()
        self._settings, self._modes = SettingsWatch(), SettingsWatch(modes=True)
        self.inference = False
        """Whether models are only evaluated, whatever the program could do."""
        self.alone = Mutex(partial(SambaError, _INSIDE))
        """Held by a run from what it is given to what it returns: threads take turns."""
        self._replicas = Replicas(self.device, profiler)
        self._gradients = GradientsWatch(self.device)
        self._select = Selector(self.device, self._prepare)

    def close(self) -> None:
        """Give back the memory of the device."""
        self.device.close()

    # What was traced belongs to it.

    def fit(
        self,
        model: nn.Module,
        call: ForwardCall,
        traced: Traced,
        optimizers: tuple[Optimizer, ...],
        mapping: str | None,
    ) -> None:
        """Raise `SambaError` that lists what differs between the PEF and a traced model."""
        require_match(self.device, model, call, traced, optimizers, mapping)

    def only_evaluates(self, optimizers: tuple[Optimizer, ...]) -> bool:
        """Return whether a model traced with `optimizers` is only evaluated, and remember it."""
        self.inference = is_inference(self.device, optimizers)
        return self.inference

    def start_from(self, traced: Traced, losses: Sequence[int] | None) -> None:
        """Let the backward pass start from `losses`, by number, or those that a compiler takes."""
        self.device.start_from(default_gradients(traced, losses, self.device))

    def follow(self, model: nn.Module, traced: Traced, optimizers: tuple[Optimizer, ...]) -> None:
        """Let the numbers of the optimizers of `model` count from the next run on.

        Warns of settings of modules that the PEF has otherwise.
        """
        self.hyperparameters.follow(optimizers)
        if optimizers:
            self.hyperparameters.look_at_rates([model], str(self.device.path))
        self._watch = FreezeWatch(learning([(model, optimizers)]))
        trains = bool(optimizers)
        tell_other_settings(self.device, "", model, traced.settings, trains=trains)
        self._look_at([(model, traced.settings, trains)])

    def follow_graphs(self, wanted: Mapping[str, Sequence[SambaTensor]], *, transfer: bool) -> None:
        """Take the traced graphs, of which `wanted` are the outputs by name, and their optimizers.

        With `transfer` their states are copied to the device. Raises `SambaError` that lists what
        differs between the PEF and the graphs.
        """
        traced, device = self._models.traced_graphs(), self.device
        require_graphs_match(device, traced, wanted)
        found = {name: find_traced(traced, name, stop) for name, stop in wanted.items()}
        users = {name: graph.optimizers for name, graph in found.items()}
        self.hyperparameters.follow(group_optimizers(traced), users)
        self.hyperparameters.look_at_rates(
            [graph.model for graph in traced if graph.optimizers], str(device.path)
        )
        self._watch = FreezeWatch(learning((graph.model, graph.optimizers) for graph in traced))
        for name, graph in found.items():
            trains = bool(graph.optimizers)
            tell_other_settings(device, name, graph.model, graph.traced.settings, trains=trains)
        self._look_at([(g.model, g.traced.settings, bool(g.optimizers)) for g in traced])
        self.inference = not device.host.trains
        for graph in traced if transfer else ():
            self.put_states(graph.model, graph.optimizers)
        device.graphs.evaluate(
            [output.sn_name for output in graph.traced.outputs]
            for graph in traced
            if not graph.optimizers
        )
        device.start_from({})

    def _look_at(self, traced: Sequence[tuple[nn.Module, Settings, bool]]) -> None:
        self._settings, self._modes = SettingsWatch(traced), SettingsWatch(traced, modes=True)

    # Runs.

    def choose(self, graph: str) -> None:
        """Run the graph of that name from now on; empty is the only one."""
        self.device.graphs.choose(graph)

    def take(self, inputs: Inputs, gradients: Sequence[Tensor | None] | None) -> None:
        """Send what a run is given to the device: inputs, and gradients of outputs."""
        device = self.device
        if inputs is not None:
            event = events.SET_PINNED if use_pinned_memory() else events.SET_TENSORS
            with measuring(self._profiler, event):
                device.hold(tensors_by_name(inputs, self._models.plain_arguments))
        if gradients is not None:
            outputs = self._models.outputs_of(device.graphs.returned)
            device.hold(gradients_by_name(gradients, outputs, device))

    def chosen(
        self, sections: SectionsNamed, mode: ReductionMode | None, *, train: bool
    ) -> tuple[Selection, ...]:
        """Return the runs that are asked for; with a `mode` gradients are reduced over processes.

        These meet in the first such run.
        """
        inference = self.inference or self.device.graphs.infers
        shared = None if inference else mode
        reduction = "none" if shared is None else self._replicas.reduction(shared)
        return self._select(SectionsAsked(*sections, reduction, train and not inference, inference))

    def run(
        self, chosen: tuple[Selection, ...], given: Mapping[str, float] | None, *, train: bool
    ) -> dict[str, np.ndarray]:
        """Run what was chosen; `given` are hyperparameters. Returns what `fetched` takes."""
        dropout = None if chosen[0].evaluates else train
        settings = self.hyperparameters.settings(given, train=dropout)
        device, profile = self.device, self._profile
        self._settings.tell(str(device.path), self.hyperparameters.names)
        if train:
            self._modes.tell(str(device.path), ())
        if train and any(_may_update(part) for part in chosen):
            self._watch.tell(str(device.path))
        self._gradients.tell(chosen)
        with measuring(self._profiler, events.RUN):
            results = device.run(chosen[0], settings, profile)
            for part in chosen[1:]:  # what was set stays, and a seed given again would begin anew
                results |= device.run(part, {}, profile)
        self.hyperparameters.made()
        return results

    def _prepare(self, chosen: tuple[Selection, ...]) -> None:
        self._replicas.tell_if_apart(chosen)
        with measuring(self._profiler, events.INIT_RUNTIME):
            self.device.prepare(chosen)

    # Between the memory of the host and that of the device.

    def put(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy tensors to the device of this process."""
        with measuring(self._profiler, events.SET_TENSORS):
            to_device(self.device, tensors)

    def put_states(self, model: nn.Module, optimizers: Iterable[Optimizer]) -> None:
        """Copy all that lives on the device from run to run to that of this process."""
        with measuring(self._profiler, events.SET_TENSORS):
            states_to_device(self.device, model, optimizers)

    def send(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Copy tensors to the device; to those of all processes what process 0 has, if they met."""
        self.put(tensors)
        self._agree()

    def send_states(self, model: nn.Module, optimizers: Iterable[Optimizer]) -> None:
        """Copy what `put_states` does, as `send`."""
        self.put_states(model, optimizers)
        self._agree()

    def _agree(self) -> None:
        if self._replicas.met:
            self.meet()

    def meet(self) -> None:
        """Meet the other processes, and give all what process 0 has."""
        self._replicas.meet()

    def fetched(
        self, asked: Sequence[SambaTensor] | SambaTensor, results: Mapping[str, np.ndarray]
    ) -> tuple[SambaTensor, ...]:
        """Return the outputs `asked` for, from the results of a run or else from memory."""
        return fetched(self.device, asked, results, self._getting())

    def named(self, names: Iterable[str]) -> tuple[SambaTensor, ...]:
        """Return what the device holds under `names`."""
        with self._getting():
            return tuple(self.device.result(name, {}) for name in names)

    def require_known(self, model: nn.Module, optimizers: Iterable[Optimizer]) -> None:
        """Raise `SambaError` for a model, and optimizers, of which the device has nothing."""
        require_known(self.device, model, optimizers)

    def fetch(self, tensors: Iterable[tuple[str, Tensor]], *, inplace: bool) -> None:
        """Copy to the host what the device holds of `tensors`, and gradients it has."""
        with self._getting():
            to_host(self.device, tensors, inplace=inplace)

    def fetch_states(
        self, model: nn.Module, optimizers: Sequence[Optimizer], *, inplace: bool
    ) -> None:
        """Copy all that lives on the device from run to run to the host."""
        own, names = (*parameters_of(model), *buffers_of(model)), parameter_names(model)
        with self._getting():
            states_to_host(self.device, own, optimizers, names, inplace=inplace)

    def fetch_optimizer(self, optimizer: Optimizer) -> None:
        """Copy the state of an optimizer of traced parameters to the host."""
        with self._getting():
            states_to_host(self.device, (), [optimizer], self._parameter_names(), inplace=False)

    def _parameter_names(self) -> dict[int, str]:
        """Return the symbols of traced tensors, by the ids of these."""
        symbols = self.device.host.symbols
        return {id(t): symbols.get(name, name) for name, t in self._models.tensors.items()}

    def _getting(self) -> AbstractContextManager[None]:
        """Return what measures copies to the host: each process makes those of its replica."""
        met = self._replicas.met
        return measuring(self._profiler, events.GET_TENSORS_GATHER if met else events.GET_TENSORS)


def _may_update(selection: Selection) -> bool:
    """Tell whether sections that update parameters may be among those chosen."""
    types = selection.section_types
    return types is None or "OPT" in types
