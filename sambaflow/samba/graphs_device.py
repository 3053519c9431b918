"""The device with a PEF of several graphs: one of them is chosen for each run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from .arrays import from_array, named_tensor, to_array
from .device import Device, Selected
from .errors import SambaError
from .multigraph import graphs_of
from .told import reworded

if TYPE_CHECKING:
    import numpy as np

    from pef.program import Program

    from .runtime_profile import RuntimeProfile
    from .tensor import SambaTensor


def start_runtime() -> None:
    """Make the runtime ready to load programs: most of that is reading its code."""
    importlib.import_module("sambarun")


def load_device(source: str | os.PathLike[str] | Program) -> Device:
    """Return a device that has loaded `source`, the path of a PEF or a program."""
    device = Device(source)
    return GraphsDevice(device) if graphs_of(device.program) else device


def prepare(device: Device, runs: Iterable[Selected]) -> None:
    """Make ready what `runs` need, so that the first of them takes no longer than others.

    Raises `SambaError` for sections that the program does not have.
    """
    from sambarun import RunError

    try:
        for part in runs:
            device.executable.prepare(
                section_types=part.section_types,
                section_ids=part.section_ids,
                calls=part.calls,
                train=part.train,
                graph=device.graph,
                reduction=part.reduction,
            )
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

    def choose(self, graph: str) -> None:
        """Run `graph` from now on. Raises `SambaError` for one that the PEF does not have."""
        from pef.wording import did_you_mean

        if not graph and len(self._graphs) == 1:
            graph = next(iter(self._graphs))
        if graph not in self._graphs:
            names = ", ".join(f"'{known.name}'" for known in self.program.graphs)
            raise SambaError(
                f"there is no graph '{graph}'{did_you_mean(graph, self._graphs)} in the PEF; give "
                f"run a graph_name, one of {names}"
            )
        self.graph = graph

    def run(
        self, selected: Selected, hyperparams: Mapping[str, float], profile: RuntimeProfile
    ) -> dict[str, np.ndarray]:
        """Run sections of the chosen graph, and return what they give, by samba's names."""
        found = super().run(selected, hyperparams, profile)
        outputs = self._graphs[self.graph or ""]["outputs"]
        return {name: found[port] for name, port in outputs.items() if port in found}

    def hold(self, inputs: Mapping[str, Tensor]) -> None:
        """Copy `inputs` of the chosen graph, or of all where none was chosen yet, to the device.

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
        given = {self._symbol(name): to_array(t) for name, t in inputs.items() if name in known}
        try:
            self.executable.write(given)
        except RunError as error:
            symbols = {name: self._symbol(name) for name in inputs if name in known}
            raise SambaError(reworded(str(error), symbols)) from error

    @property
    def inputs(self) -> Mapping[str, str]:
        """The input ports of the chosen graph by samba's names; all symbols before a choice."""
        return self._graphs[self.graph]["inputs"] if self.graph else self.symbols

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
