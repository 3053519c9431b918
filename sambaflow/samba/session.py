"""The session of an application: its PEF, its tensors on the device, and its modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Never, ParamSpec

from torch import Tensor, nn

from sambaflow.sambacollections import OrderedSet

from . import exits, lazy_param, pinned
from .arguments import Optimizers, check_options, listed, options_of
from .checked import checked, require
from .errors import SambaError
from .kinds import CALLABLE, PATH, some
from .meeting import join_launched
from .multigraph_session import MultigraphSession
from .profiler import Profiler, finish, profiled
from .tensor import SAMBA_TENSOR, SambaTensor, to_torch
from .tensor_table import TensorTable
from .told import misfit
from .transfer import buffers_of, optimizer_states, require_known, states_of, to_host

P = ParamSpec("P")

_TENSORS = some(SAMBA_TENSOR, "a list of SambaTensors")


class SambaSession(MultigraphSession):
    """Compiles models into PEFs and runs them; `sambaflow.samba.session` is the one to use.

    `pef_path` is a PEF to load at once; without one `trace_graph` loads it.
    """

    @checked(pef_path=PATH)
    def __init__(self, pef_path: str = "") -> None:
        super().__init__()
        self._context_directives: Mapping[str, object] = {}
        self.dynamic_dims: Mapping[str, object] = {}
        """Sizes that may vary from run to run, by name: there are none here."""
        if pef_path:
            self._load(pef_path)

    @staticmethod
    @checked(pef_path=PATH)
    def reset(pef_path: str = "") -> None:
        """Begin anew: forget the PEF, all traced tensors, options and pinned memory.

        `pef_path` is loaded if it is given. Profiles that run go on, to measure that too; so does
        the lazy building of modules.
        """
        session._clear()
        session._take_defaults()
        pinned.forget()
        if pef_path:
            session._load(pef_path)

    # What the PEF has.

    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the hyperparameters that `run` takes."""
        return OrderedSet(self._hyperparameters().names)

    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that are rates of dropout."""
        return list(self._hyperparameters().rates)

    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that seed dropout."""
        return list(self._hyperparameters().seeds)

    def get_section_types(self) -> set[str]:
        """Return the types of the sections in the PEF, such as FWD and OPT."""
        return {section.type.name for section in self._loaded().program.sections}

    def get_weight_names(self) -> list[str]:
        """Return the names of the parameters in the PEF."""
        return self._loaded().weights()

    # Tensors on the device.

    @property
    def _traced_tensors(self) -> TensorTable:
        """What applications call `traced_tensors` too: a dict by name, or called, its tensors."""
        return self.traced_tensors

    @property
    def optim_dict(self) -> TensorTable:
        """The state of the optimizers that were traced, by name, in the memory that it has.

        Its values may be indexed: `optim_dict.values()[0].rdu()` copies one to the device.
        """
        states = (optimizer_states(model, listed(given)) for model, given in self._stepped)
        named = {n: SambaTensor(t, name=n) for found in states for n, t in found.items()}
        return TensorTable(named)

    def note_converted(self, name: str, tensor: SambaTensor) -> None:
        """Let `tensor` stand for the traced one of its name, if it has that one's shape."""
        known = self.traced_tensors.get(name)
        if known is not None and known.shape == tensor.shape:
            self.traced_tensors[name] = tensor

    @checked()
    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return the traced tensor `name`; what the device holds of it is not fetched.

        Raises `SambaError` if nothing of that name was traced.
        """
        found = self.traced_tensors.get(name)
        if found is None:
            from pef.wording import did_you_mean

            raise SambaError(
                f"no tensor '{name}' was traced{did_you_mean(name, self.traced_tensors)}"
            )
        return found

    @checked(samba_tensors=_TENSORS)
    def get_tensors(self, samba_tensors: Iterable[SambaTensor]) -> tuple[SambaTensor, ...]:
        """Return what the device holds of `samba_tensors`."""
        return self.get_tensors_by_name([tensor.sn_name for tensor in samba_tensors])

    @checked()
    def get_tensors_by_name(self, names: Iterable[str]) -> tuple[SambaTensor, ...]:
        """Return what the device holds under `names`."""
        device = self._loaded()
        with self._getting():
            return tuple(device.result(name, {}) for name in names)

    @checked()
    def update_tensor(self, name: str, tensor: Tensor | None) -> None:
        """Give the traced tensor `name` new values on the host; None forgets the tensor.

        Raises `SambaError` for values of another shape.
        """
        found = self.get_samba_tensor_by_name(name)
        if tensor is None:
            del self.traced_tensors[name]
        elif tensor.shape != found.shape:
            raise SambaError(misfit(name, (found.dtype, found.shape), tensor))
        else:
            found.data = to_torch(tensor)

    def to_device(self) -> None:
        """Copy all traced tensors that have values to the device.

        Where others of these names and shapes were converted since (`from_torch_model_`,
        `from_torch_tensor`), those that were converted last.
        """
        self._send(self._with_values())

    @classmethod
    @checked()
    def to_cpu(
        cls,
        model: nn.Module,
        optims: Optimizers = None,
        inplace: bool = False,
    ) -> None:
        """Copy parameters, buffers and the state of optimizers from the device to the host.

        Before a PEF is loaded the host has all there is, and nothing happens.
        """
        if session.device is None:
            return
        require_known(session.device, model, listed(optims))
        with session._getting():
            to_host(session.device, states_of(model, listed(optims)), inplace=inplace)

    @classmethod
    @checked()
    def to_cpu_(cls, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy like `to_cpu` into the memory that the tensors have."""
        cls.to_cpu(model, optims, inplace=True)

    @classmethod
    @checked()
    def to_rdu(cls, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy parameters, buffers and the state of optimizers from the host to the device."""
        require_known(session._loaded(), model, listed(optims))
        session._send(states_of(model, listed(optims)))

    @classmethod
    @checked()
    def sync_buffers_to_cpu(cls, model: nn.Module, inplace: bool = False) -> None:
        """Copy the buffers of `model` from the device to the host, once a PEF is loaded."""
        if session.device is None:
            return
        with session._getting():
            to_host(session.device, buffers_of(model), inplace=inplace)

    @classmethod
    @checked()
    def sync_buffers_to_rdu(cls, model: nn.Module) -> None:
        """Copy the buffers of `model` from the host to the device."""
        session._send(buffers_of(model))

    def _with_values(self) -> list[tuple[str, Tensor]]:
        return [(name, tensor) for name, tensor in self.traced_tensors.items() if tensor.has_data]

    # Parameters without values.

    def enable_lazy_param(
        self,
        seed: int | None = None,
        init_threads: int = 8,
        inverse_transform_sampling: bool = False,
        fp32_to_bf16_rounding: str = "nearest_even",
    ) -> None:
        """Build modules without values from now on: they are made when they are needed.

        Values come from `seed`, or torch's seed if it is None, by `init_threads` threads, and do
        not depend on their number. `inverse_transform_sampling` draws normal numbers by the inverse
        of their distribution. `fp32_to_bf16_rounding` is `nearest_even` or `truncation`.
        """
        lazy_param.enable_lazy_param(
            seed, init_threads, inverse_transform_sampling, fp32_to_bf16_rounding
        )

    @staticmethod
    def disable_lazy_param() -> None:
        """Build modules with values from now on."""
        lazy_param.disable_lazy_param()

    @staticmethod
    def use_lazy_param() -> bool:
        """Return whether modules are built without values now."""
        return lazy_param.use_lazy_param()

    def reset_random_generator(self) -> None:
        """Begin anew with the random numbers of lazy parameters.

        The seed of dropout is a hyperparameter: `get_dropout_seed_argin_names` has its names.
        """
        lazy_param.reset_random_generator()

    # Hints for the mapper of hardware, and shapes that vary: kept for models that ask for them.

    @contextmanager
    def _add_directives(self, directives: Mapping[str, object] | None) -> Iterator[None]:
        """Let operators in the block bear `directives`; here nothing is mapped by them."""
        before = self._context_directives
        self._context_directives = {**before, **(directives or {})}
        try:
            yield
        finally:
            self._context_directives = before

    @checked()
    def add_aux_tensor(self, tensor: Tensor, name: str) -> None:
        """Mention a tensor that a model computes for several graphs, such as angles of positions.

        The compiler finds by itself what does not depend on inputs, so nothing is kept.
        """

    @checked()
    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Return whether `add_aux_tensor` may be given `name`: a word that no traced tensor has."""
        return bool(name) and name not in self.traced_tensors

    # Modes that hardware has.

    def enable_pinned_memory(self) -> None:
        """Ask for pinned memory. The device is in the memory of the host: nothing gets faster.

        Inputs and the gradients of outputs are marked for it when a model is traced.
        """
        pinned.enable_pinned_memory()

    def disable_pinned_memory(self) -> None:
        """Take back `enable_pinned_memory`."""
        pinned.disable_pinned_memory()

    def use_pinned_memory(self) -> bool:
        """Return whether pinned memory was asked for."""
        return pinned.use_pinned_memory()

    def use_static_functional(self) -> bool:
        """Return whether operators describe instead of compute: in tracing and lazy building.

        They do so for an application that sets `tracing`, too.
        """
        return self.tracing or lazy_param.use_lazy_param()

    @staticmethod
    @checked()
    def use_legacy_names(use: bool) -> None:
        """Choose older names of operators: there are none here, so True warns and does nothing."""
        if use:
            from pef.warned import warn

            warn("operators are named in one way here; use_legacy_names(True) changes no name")

    @contextmanager
    def disable_graphamp(self) -> Iterator[None]:
        """Compile what is compiled in the block in the precision of the model itself."""
        before, self.graphamp = self.graphamp, False
        try:
            yield
        finally:
            self.graphamp = before

    def setup(self, args: object) -> None:
        """Take the options of `CompileArgs` or `RunArgs`, a dict, or what has them as attributes.

        `FlattenSambaArgsAllowExtra` has those of both; `HydraSambaArgs` has both apart, and the one
        that its `command` says counts: running, where it says nothing. They are what `compile` and
        `trace_graph` take where the call itself does not say. With a PEF and `data_parallel` the
        processes that were launched together meet here.

        Raises `SambaError` for what is no dict and has no attributes.
        """
        options = options_of(args)
        check_options(options)
        self.options = options
        if self.options.get("pef") and self.options.get("data_parallel"):
            join_launched()

    # Profiling and the end of the process.

    @checked(filename=PATH.or_none())
    @contextmanager
    def samba_profile(self, filename: str | None = None) -> Iterator[Profiler]:
        """Measure what the host does in the block; the table goes to a file, or is printed."""
        with profiled(self.profiler, filename) as profiler:
            yield profiler

    def start_samba_profile(self) -> None:
        """Begin to measure what the host does."""
        self.profiler.start_profile()

    @checked(filename=PATH.or_none())
    def end_samba_profile(self, filename: str | None = None) -> None:
        """Stop measuring; the table goes to a file, or is printed."""
        finish(self.profiler, filename)

    @checked()
    def start_runtime_profile(self, timer_enabled: bool = True) -> None:
        """Begin to measure sections and Python's functions, if ENABLE_RUNTIME_PERF is set.

        It is SUMMARY or DETAILED. `timer_enabled` prints how long it was between start and end.
        """
        self.runtime_profile.start(timer_enabled)

    @checked(log_file=PATH)
    def end_runtime_profile(self, log_file: str = "cprofile_tmp.log") -> None:
        """Stop measuring, and write the tables to `log_file`."""
        self.runtime_profile.end(log_file)

    def atexit_register(self, func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have `func` called before the process ends, also where `use_abexit` ends it."""
        require("func", func, CALLABLE)
        exits.atexit_register(func, *args, **kwargs)

    def use_abexit(self, func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Never:
        """Run an application, and end the process without waiting for others, however it ends."""
        require("func", func, CALLABLE)
        exits.use_abexit(func, *args, **kwargs)


session = SambaSession()
