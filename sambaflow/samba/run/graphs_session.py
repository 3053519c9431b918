"""A program of several graphs on the device: one of them is chosen for each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pef.graphs import gradient_name
from pef.wording import did_you_mean
from sambaflow.samba.compile.application import compiled_graph, graphs_of
from sambaflow.samba.errors import SambaError
from sambahost.arrays import copied, from_array, to_array
from sambahost.device_session import DeviceSession
from sambahost.errors import HostError
from sambahost.wording import reworded
from sambarun import Executable, Profile, RunError, Selection


class GraphsSession(DeviceSession):
    """Runs graphs of a program whose inputs are in the memory of the device.

    They are copied when they are given, so that all graphs find what they share. `unused` are
    inputs of models that no graph reads.
    """

    def __init__(self, executable: Executable, api: str, unused: Iterable[str]) -> None:
        super().__init__(executable, api, unused)
        self.graph: str | None = None
        self._graphs = graphs_of(self.program)
        self._idle: frozenset[str] = frozenset()

    def evaluate(self, outputs: Iterable[Iterable[str]]) -> None:
        """Only evaluate the graphs that have these outputs: nobody brought optimizers for them."""
        ends = [frozenset(names) for names in outputs]
        self._idle = frozenset(
            name for name, graph in self._graphs.items() if frozenset(graph.outputs) in ends
        )

    def choose(self, graph: str) -> None:
        """Run `graph` from now on. Raises `SambaError` for one that the PEF does not have."""
        if not graph and len(self._graphs) == 1:
            graph = next(iter(self._graphs))
        if graph not in self._graphs:
            names = ", ".join(f"'{known}'" for known in self._graphs)
            raise SambaError(
                f"there is no graph '{graph}'{did_you_mean(graph, self._graphs)} in the PEF; give "
                f"run a graph_name, one of {names}"
            )
        self.graph = graph

    @property
    def calls(self) -> range:
        """The calls of the chosen graph, of its training step if it trains."""
        graph = compiled_graph(self.program, self.graph or next(iter(self._graphs)))
        return range(graph.first_call, graph.first_call + graph.calls)

    @property
    def infers(self) -> bool:
        """Whether the chosen graph is for inference."""
        graph = self.graph or ""
        return graph in self._idle or not self._graphs[graph].trains

    @property
    def inputs(self) -> Mapping[str, str]:
        """The input ports of the chosen graph by samba's names; all symbols before a choice."""
        return self._given[self.graph] if self.graph else self.symbols

    @property
    def returned(self) -> frozenset[str]:
        """The outputs of the chosen graph, by samba's names."""
        return frozenset(self._graphs[self.graph or ""].outputs)

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The outputs of all graphs by samba's names."""
        return {
            name: port for graph in self._graphs.values() for name, port in graph.outputs.items()
        }

    @cached_property
    def seeds(self) -> Mapping[str, str]:
        """What starts the backward passes: the names of gradients by those of outputs."""
        return {
            name: gradient_name(name)
            for graph in self._graphs.values()
            for name in graph.outputs
            if graph.trains and gradient_name(name) in self.symbols
        }

    def hold(self, inputs: Mapping[str, Tensor]) -> None:
        """Copy `inputs` of the chosen graph, or of all where none was chosen yet, to the device.

        Whole numbers may be wider than those that the device holds, as long as they fit.
        Raises `HostError` for names that are no inputs, and for other shapes and types.
        """
        known = self.inputs
        unknown = [name for name in inputs if name not in known and name not in self.unused]
        if unknown:
            where = f"graph '{self.graph}'" if self.graph else "the PEF"
            raise HostError(
                f"{where} has no input {', '.join(unknown)}; its inputs are {', '.join(known)}"
            )
        symbols = {name: self.symbol(name) for name in inputs if name in known}
        try:
            self.executable.write(
                {
                    symbol: to_array(_narrowed(inputs[name], self.kind_of(symbol)[0]))
                    for name, symbol in symbols.items()
                }
            )
        except RunError as error:
            raise HostError(reworded(str(error), symbols)) from error

    def start_from(self, gradients: Mapping[str, Tensor]) -> None:
        """Let backward passes start from ones, except the outputs that `gradients` has."""
        for name in self.seeds.values():
            kind, shape = self.kind_of(self.symbol(name))
            self.write(name, gradients.get(name, torch.ones(shape, dtype=kind)))

    def run(self, selected: Selection, hyperparams: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Run sections of the chosen graph, and return what they give, by samba's names.

        Raises `HostError` for what does not fit the program.
        """
        try:
            found = self.executable.run({}, selected, copy=False, hyperparams=hyperparams)
        except RunError as error:
            raise HostError(reworded(str(error), self.inputs)) from error
        return copied(self._by_name(found))

    def profile(self, selected: Selection, hyperparams: Mapping[str, float]) -> Profile:
        """Run as `run` does, each section by itself, and return how long each took, too."""
        try:
            found = self.executable.profile({}, selected, hyperparams=hyperparams)
        except RunError as error:
            raise HostError(reworded(str(error), self.inputs)) from error
        return found._replace(outputs=self._by_name(found.outputs))

    def result(self, name: str, results: Mapping[str, np.ndarray]) -> Tensor:
        """Return the tensor `name` from the results of a run, or else from memory."""
        found = results.get(name)
        if found is None:
            return self.read(name)
        return from_array(found, self._types[self.symbol(name)])

    def _by_name(self, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = self._graphs[self.graph or ""].outputs
        return {name: found[port] for name, port in outputs.items() if port in found}

    @cached_property
    def _given(self) -> Mapping[str, Mapping[str, str]]:
        """What may be given to each graph by samba's names: inputs, gradients of its outputs."""
        starts = self.seeds
        return {
            name: {
                **graph.inputs,
                **{starts[n]: starts[n] for n in graph.outputs if graph.trains and n in starts},
            }
            for name, graph in self._graphs.items()
        }


def _narrowed(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 64-bit numbers as the 32-bit ones of `dtype`, if that loses nothing."""
    if tensor.dtype is not torch.int64 or dtype is not torch.int32:
        return tensor
    narrow = tensor.detach().to(torch.int32)
    return narrow if torch.equal(narrow.long(), tensor) else tensor
