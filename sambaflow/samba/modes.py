"""Modes of a session: what holds from one of its calls to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Never, ParamSpec

from torch import Tensor

from pef.warned import warn
from sambaflow.samba.arguments.checked import checked, require
from sambaflow.samba.arguments.kinds import CALLABLE, FLAG
from sambaflow.samba.arguments.options import check_options, options_of
from sambaflow.samba.tensors import pinned
from sambaflow.samba.tensors.symbolic import SYMBOLIC, computing, switch

from . import lazy_param
from .parallel import exits
from .parallel.joining import join_launched

P = ParamSpec("P")


class SessionModes:
    """What applications switch on and off, and the options that hold until they say otherwise."""

    def __init__(self) -> None:
        self._context_directives: Mapping[str, object] = {}
        self.dynamic_dims: Mapping[str, object] = {}
        """Sizes that may vary from run to run, by name: there are none here."""
        self._tracing = False
        self.data_parallel_mode = "normal"
        """How reductions overlap in runs that name no mode."""
        self.graphamp = True
        """Whether the precision that the options ask for is used."""
        self.options: Mapping[str, object] = {}
        """Options of `compile` and `trace_graph` where the call itself does not say."""
        self._take_defaults()

    # Options and tracing.

    def use_static_functional(self) -> bool:
        """Return whether operators describe instead of compute: in tracing and lazy building.

        They do so for an application that sets `tracing`, too.
        """
        return self.tracing or lazy_param.use_lazy_param()

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

    def _take_defaults(self) -> None:
        """Let everything be as if nobody had said anything yet."""
        self.tracing = False
        self.data_parallel_mode = "normal"
        self.graphamp = True
        self.options = {}

    def _config(self, given: Mapping[str, object] | None) -> dict[str, object]:
        return {**self.options, **(given or {})}

    @contextmanager
    def _while_tracing(self) -> Iterator[None]:
        before, self._tracing = self._tracing, True
        try:
            with computing():
                yield
        finally:
            self._tracing = before

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

    # Memory, names and the end of the process.

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

    @staticmethod
    @checked()
    def use_legacy_names(use: bool) -> None:
        """Choose older names of operators: there are none here, so True warns and does nothing."""
        if use:
            warn("operators are named in one way here; use_legacy_names(True) changes no name")

    def atexit_register(self, func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have `func` called before the process ends, also where `use_abexit` ends it."""
        require("func", func, CALLABLE)
        exits.atexit_register(func, *args, **kwargs)

    def use_abexit(self, func: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Never:
        """Run an application, and end the process without waiting for others, however it ends."""
        require("func", func, CALLABLE)
        exits.use_abexit(func, *args, **kwargs)
