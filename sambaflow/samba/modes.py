"""Modes of a session: what holds from one of its calls to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from pef.warned import warn
from sambaflow.samba.arguments.checked import checked, require
from sambaflow.samba.arguments.kinds import FLAG
from sambaflow.samba.arguments.options import check_options, options_of, require_known
from sambaflow.samba.tensors.symbolic import SYMBOLIC, computing, switch

from . import lazy_param
from .parallel.exits import join_launched


class Modes:
    """What applications switch on and off, and the options that hold until they say otherwise.

    `directives` are those of the blocks that the application is in.
    """

    def __init__(self) -> None:
        self.directives: Mapping[str, object] = {}
        self.dynamic_dims: Mapping[str, object] = {}
        """Sizes that may vary from run to run, by name: there are none here."""
        self._tracing = False
        self.data_parallel_mode = "normal"
        """How reductions overlap in runs that name no mode."""
        self.graphamp = True
        """Whether the precision that the options ask for is used."""
        self.options: Mapping[str, object] = {}
        """Options of `compile` and `trace_graph` where the call itself does not say."""
        self.take_defaults()

    # Options and tracing.

    @checked()
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

    @checked()
    @contextmanager
    def disable_graphamp(self) -> Iterator[None]:
        """Compile what is compiled in the block in the precision of the model itself."""
        before, self.graphamp = self.graphamp, False
        try:
            yield
        finally:
            self.graphamp = before

    @checked()
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

    def take_defaults(self) -> None:
        """Let everything be as if nobody had said anything yet."""
        self.tracing = False
        self.data_parallel_mode = "normal"
        self.graphamp = True
        self.options = {}

    def config(self, given: Mapping[str, object] | None) -> dict[str, object]:
        """Return the options that hold, where those `given` to a call do not say otherwise.

        Raises `SambaError` for names that no option has.
        """
        require_known(given or {})
        return {**self.options, **(given or {})}

    @contextmanager
    def while_tracing(self) -> Iterator[None]:
        """Trace in the block: operators compute there, whatever an application has switched on."""
        before, self._tracing = self._tracing, True
        try:
            with computing():
                yield
        finally:
            self._tracing = before

    # Hints for the mapper of hardware, and shapes that vary: kept for models that ask for them.

    @contextmanager
    def add_directives(self, directives: Mapping[str, object] | None) -> Iterator[None]:
        """Let operators in the block bear `directives`; here nothing is mapped by them."""
        before = self.directives
        self.directives = {**before, **(directives or {})}
        try:
            yield
        finally:
            self.directives = before

    @checked()
    def add_aux_tensor(self, tensor: Tensor, name: str) -> None:
        """Mention a tensor that a model computes for several graphs, such as angles of positions.

        The compiler finds by itself what does not depend on inputs, so nothing is kept.
        """

    @staticmethod
    @checked()
    def use_legacy_names(use: bool) -> None:
        """Choose older names of operators: there are none here, so True warns and does nothing."""
        if use:
            warn("operators are named in one way here; use_legacy_names(True) changes no name")
