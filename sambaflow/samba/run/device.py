"""The device in samba's words: a loaded PEF, its memory under samba's names, runs of sections."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

import sambarun
from pef.program import Program
from sambaflow.samba.compile.application import API, graphs_of, unused_inputs
from sambaflow.samba.errors import SambaError, in_samba_words, worded
from sambaflow.samba.tensors.device_tensor import values_of
from sambaflow.samba.tensors.tensor import SambaTensor
from sambahost.data_parallel import GroupReducer
from sambahost.device_session import DeviceSession
from sambahost.errors import HostError
from sambahost.launch import threads_of_share
from sambahost.model_session import ModelSession
from sambarun import Selection

from .graphs_session import GraphsSession
from .runtime_profile import RuntimeProfile


class GraphChoice(Protocol):
    """Which graph of a program runs."""

    @property
    def graph(self) -> str | None:
        """The graph that runs, None where the program has but one."""

    @property
    def infers(self) -> bool:
        """Whether the graph that runs is for inference in a program that trains by others."""

    @property
    def returned(self) -> frozenset[str] | None:
        """The outputs of the graph that runs, None where the program has but one."""

    def choose(self, graph: str) -> None:
        """Run `graph` from now on; empty for the only one."""

    def evaluate(self, outputs: Iterable[Iterable[str]]) -> None:
        """Only evaluate the graphs that have these outputs: nobody brought optimizers for them."""


class OneGraph:
    """The graph of a program that has but one: there is nothing to choose."""

    graph = None
    infers = False
    returned = None

    def choose(self, graph: str) -> None:
        """Raise `SambaError` for any name: the program has but one graph."""
        if graph:
            raise SambaError(
                f"the PEF has one graph, of one model, and run was given graph_name='{graph}'; "
                f"leave that out, or load a PEF of compile_multigraph"
            )

    def evaluate(self, outputs: Iterable[Iterable[str]]) -> None:
        """Do nothing: `session.inference` says it of the only graph."""


class SambaDevice:
    """A program on the modelled device. Raises `SambaError`, and returns SambaTensors.

    `host` is what any API would drive it with, `graphs` says which graph runs, and `path` is how
    messages call the program.
    """

    def __init__(self, host: DeviceSession, graphs: GraphChoice, path: str) -> None:
        self.host = host
        self.graphs = graphs
        self.path = path
        self.program: Program = host.program
        self.executable: sambarun.Executable = host.executable

    @property
    def calls(self) -> range:
        """The calls of the graph that runs: of the training step, if it trains."""
        return self.host.calls

    def close(self) -> None:
        """Give back the memory of the device."""
        self.host.close()

    def argins(self) -> Mapping[str, float]:
        """Return the values of the hyperparameters now."""
        return self.host.argins()

    def run(
        self, selected: Selection, hyperparams: Mapping[str, float], profile: RuntimeProfile
    ) -> dict[str, np.ndarray]:
        """Run sections on the inputs held, and return what they give, for `result`.

        While `profile` is on, each section runs by itself and is measured.
        """
        try:
            if not profile.enabled:
                return self.host.run(selected, hyperparams)
            found = self.host.profile(selected, hyperparams)
        except HostError as error:
            raise worded(error) from error.__cause__
        profile.add(found.spans)
        return found.outputs

    def prepare(self, runs: Iterable[Selection]) -> None:
        """Make ready what `runs` need, so that the first of them takes no longer than others."""
        with in_samba_words():
            self.host.prepare(runs)

    def hold(self, inputs: Mapping[str, Tensor]) -> None:
        """Take `inputs`, by samba's names, for the next run and those that follow."""
        try:
            self.host.hold(inputs)
        except HostError as error:
            raise worded(error) from error.__cause__

    def start_from(self, gradients: Mapping[str, Tensor]) -> None:
        """Let the backward pass start from ones, except the outputs that `gradients` has."""
        with in_samba_words():
            self.host.start_from(gradients)

    def read(self, name: str) -> Tensor:
        """Return a copy of what `name` holds."""
        with in_samba_words():
            return self.host.read(name)

    def find(self, name: str) -> Tensor | None:
        """Return a copy of what `name` holds, None where there is no such thing now."""
        return self.host.find(name)

    def write(self, name: str, value: Tensor) -> None:
        """Overwrite what `name` holds."""
        with in_samba_words():
            self.host.write(name, value)

    def result(self, name: str, results: Mapping[str, np.ndarray]) -> SambaTensor:
        """Return the tensor `name` from the results of a run, or else from memory."""
        try:
            found = self.host.result(name, results)
        except HostError as error:
            raise worded(error) from error.__cause__
        # Nobody else knows the tensor: it becomes the result, as an alias takes torch longer.
        found.__class__ = SambaTensor
        assert isinstance(found, SambaTensor)
        found.sn_name = name
        return found

    def described(self, name: str) -> tuple[torch.dtype, tuple[int, ...]] | None:
        """Return the type and shape of `name`, None if the program does not know it."""
        return self.host.described(name)


def load_device(source: str | os.PathLike[str] | Program) -> SambaDevice:
    """Return a device that has loaded `source`, the path of a PEF or a program."""
    with in_samba_words():
        threads = threads_of_share()
    executable = sambarun.load(source, threads=threads, reducer=GroupReducer())
    path = "the program" if isinstance(source, Program) else os.fspath(source)
    unused = unused_inputs(executable.program)
    if graphs_of(executable.program):
        several = GraphsSession(executable, API, unused)
        return SambaDevice(several, several, path)
    return SambaDevice(ModelSession(executable, API, values_of, unused), OneGraph(), path)
