"""The device with a PEF of several graphs: one of them is chosen for each run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .arrays import from_array, named_tensor, to_array, torch_type
from .device import Device
from .errors import SambaError
from .graph_names import compiled_graph, graphs_of
from .names import gradient_name
from .told import reworded

if TYPE_CHECKING:
    import numpy as np

    from pef.program import Program
    from sambarun import Selection

    from .runtime_profile import RuntimeProfile
    from .tensor import SambaTensor


def start_runtime() -> None:
    """Make the runtime ready to load programs: most of that is reading its code."""
    importlib.import_module("sambarun")


def load_device(source: str | os.PathLike[str] | Program) -> Device:
    """Return a device that has loaded `source`, the path of a PEF or a program."""
    device = Device(source)
    return GraphsDevice(device) if graphs_of(device.program) else device


def prepare(device: Device, runs: Iterable[Selection]) -> None:
    """Make ready what `runs` need, so that the first of them takes no longer than others.

    Raises `SambaError` for sections that the program does not have.
    """
    from sambarun import RunError

    try:
        for part in runs:
            device.executable.prepare(part)
    except RunError as error:
        raise SambaError(str(error)) from error


class GraphsDevice(Device):
    """A program of several graphs, whose inputs keep their values from run to run.

    They are copied when they are given, so that all graphs find what they share.
    """

    def __init__(self, device: Device) -> None:
        """Take over what `device` has loaded."""
        self.path, self.executable, self.program = device.path, device.executable, device.program
        self.graph = None
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
        from pef.wording import did_you_mean

        if not graph and len(self._graphs) == 1:
            graph = next(iter(self._graphs))
        if graph not in self._graphs:
            names = ", ".join(f"'{known}'" for known in self._graphs)
            raise SambaError(
                f"there is no graph '{graph}'{did_you_mean(graph, self._graphs)} in the PEF; give "
                f"run a graph_name, one of {names}"
            )
        self.graph = graph

    def run(
        self, selected: Selection, hyperparams: Mapping[str, float], profile: RuntimeProfile
    ) -> dict[str, np.ndarray]:
        """Run sections of the chosen graph, and return what they give, by samba's names."""
        found = super().run(selected, hyperparams, profile)
        outputs = self._graphs[self.graph or ""].outputs
        return {name: found[port] for name, port in outputs.items() if port in found}

    def hold(self, inputs: Mapping[str, Tensor]) -> None:
        """Copy `inputs` of the chosen graph, or of all where none was chosen yet, to the device.

        Whole numbers may be wider than those that the device holds, as long as they fit.
        Raises `SambaError` for names that are no inputs, and for other shapes and types.
        """
        from sambarun import RunError

        known = self.inputs
        unknown = [name for name in inputs if name not in known and name not in self.unused]
        if unknown:
            where = f"graph '{self.graph}'" if self.graph else "the PEF"
            raise SambaError(
                f"{where} has no input {', '.join(unknown)}; its inputs are {', '.join(known)}"
            )
        given = {
            (symbol := self._symbol(name)): to_array(_narrowed(tensor, self._types[symbol]))
            for name, tensor in inputs.items()
            if name in known
        }
        try:
            self.executable.write(given)
        except RunError as error:
            symbols = {name: self._symbol(name) for name in inputs if name in known}
            raise SambaError(reworded(str(error), symbols)) from error

    @property
    def inputs(self) -> Mapping[str, str]:
        """The input ports of the chosen graph by samba's names; all symbols before a choice."""
        return self._given[self.graph] if self.graph else self.symbols

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

    def start_from(self, gradients: Mapping[str, Tensor]) -> None:
        """Let backward passes start from ones, except the outputs that `gradients` has."""
        for name in self.seeds.values():
            symbol = self._symbol(name)
            ones = torch.ones(self._shapes[symbol], dtype=torch_type(self._types[symbol]))
            self.write(name, gradients.get(name, ones))

    @property
    def returned(self) -> frozenset[str]:
        """The outputs of the chosen graph, by samba's names."""
        return frozenset(self._graphs[self.graph or ""].outputs)

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

    @cached_property
    def _input_symbols(self) -> frozenset[str]:
        """No input is held on the host."""
        return frozenset()

    def result(self, name: str, results: Mapping[str, np.ndarray]) -> SambaTensor:
        """Return the tensor `name` from the results of a run, or else from memory."""
        found = results.get(name)
        if found is None:
            return named_tensor(self.read(name), name)
        return named_tensor(from_array(found, self._types[self._symbol(name)]), name)


def _narrowed(tensor: Tensor, dtype: int) -> Tensor:
    """Return 64-bit numbers as the 32-bit ones of type `dtype`, if that loses nothing."""
    if tensor.dtype is not torch.int64 or torch_type(dtype) is not torch.int32:
        return tensor
    narrow = tensor.detach().to(torch.int32)
    return narrow if torch.equal(narrow.long(), tensor) else tensor
