"""The device: a loaded PEF, its memory under samba's names, and runs of its sections."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from .arrays import from_array, holds, named_tensor, to_array, torch_type
from .compiling import API
from .distributed import GroupReducer
from .errors import SambaError
from .feeds import HeldInputs
from .launch import threads_of_share
from .tensor import SambaTensor
from .told import misfit, no_gradient_kept, no_such_gradient, no_such_inputs, reworded

if TYPE_CHECKING:
    import numpy as np

    import sambarun
    from pef.program import Port, Program
    from sambarun import Selection

    from .runtime_profile import RuntimeProfile

_GRAD = "__grad"
_PART = "__"


class DeviceMemory(Protocol):
    """What tensors ask of the device."""

    def read(self, name: str) -> Tensor:
        """Return a copy of what `name` holds."""

    def find(self, name: str) -> Tensor | None:
        """Return a copy of what `name` holds, None where it holds nothing now."""

    def write(self, name: str, value: Tensor) -> None:
        """Overwrite what `name` holds."""


class Device:
    """A program on the modelled device.

    Values are torch tensors on the host that share no memory with the device.
    """

    def __init__(self, source: str | os.PathLike[str] | Program) -> None:
        import sambarun
        from pef.program import Program

        self.path = "the program" if isinstance(source, Program) else os.fspath(source)
        self.executable: sambarun.Executable = sambarun.load(
            source, threads=threads_of_share(), reducer=GroupReducer()
        )
        self.program = self.executable.program
        self.graph: str | None = None
        """The graph that runs, where the program has several."""

    def choose(self, graph: str) -> None:
        """Run `graph` from now on. Raises `SambaError` as the program has but one."""
        if graph:
            raise SambaError(
                f"the PEF has one graph, of one model, and run was given graph_name='{graph}'; "
                f"leave that out, or load a PEF of compile_multigraph"
            )

    @property
    def calls(self) -> range:
        """The calls of the graph that runs: of the training step, if it trains."""
        graph = self.program.graphs[0]
        return range(graph.first_call, graph.first_call + graph.calls)

    @property
    def infers(self) -> bool:
        """Whether the graph that runs is for inference in a program that trains by others."""
        return False

    def close(self) -> None:
        """Give back the memory of the device."""
        self.executable.close()

    @cached_property
    def _refusal(self) -> type[sambarun.RunError]:
        """What the runtime raises: found once, as an import in each run would take time."""
        from sambarun import RunError

        return RunError

    @cached_property
    def _feeds(self) -> HeldInputs:
        """The inputs; gradients that the backward pass starts from have ones as their default."""
        return HeldInputs(self.executable, self._input_symbols)

    @cached_property
    def symbols(self) -> Mapping[str, str]:
        """The names of symbols in the program, by samba's names."""
        program = self.program
        return {
            alias.name: program.symbols[alias.symbol].name
            for alias in program.aliases
            if alias.api == API
        }

    @cached_property
    def inputs(self) -> Mapping[str, str]:
        """The input ports by samba's names, and by the program's own.

        Among them are the gradients of the outputs that start the backward pass.
        """
        found = self._ports([port for graph in self.program.graphs for port in graph.inputs])
        return {**found, **{f"{name}{_GRAD}": port for name, port in self.seeds.items()}}

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The output ports by samba's names; the program's own names do too."""
        return self._ports(self.program.graphs[0].outputs)

    @cached_property
    def seeds(self) -> Mapping[str, str]:
        """The gradients of outputs that start the backward pass, by samba's names of these."""
        graph = self.program.graphs[0]
        given = {port.symbol: port.name for port in graph.inputs}
        starts = {p.name: given[p.gradient] for p in graph.outputs if p.gradient is not None}
        return {name: starts[port] for name, port in self.outputs.items() if port in starts}

    @property
    def trains(self) -> bool:
        """Whether the program has backward sections."""
        from pef.states import is_training

        return is_training(self.program)

    @cached_property
    def keeps_parameters(self) -> bool:
        """Whether parameters live on the device, and are not constants inside of the program."""
        from pef.states import has_states

        return has_states(self.program)

    @property
    def updates(self) -> bool:
        """Whether optimizers update parameters."""
        return any(section.type.name == "OPT" for section in self.program.sections)

    @cached_property
    def _evaluated(self) -> tuple[str, ...]:
        return tuple(port.name for port in self.program.graphs[-1].inputs)

    @cached_property
    def unused(self) -> frozenset[str]:
        """Inputs of the model that its program does not read."""
        found = application_of(self.program).get("unused_inputs")
        return frozenset(map(str, found)) if isinstance(found, list) else frozenset()

    def run(
        self, selected: Selection, hyperparams: Mapping[str, float], profile: RuntimeProfile
    ) -> dict[str, np.ndarray]:
        """Run sections on the inputs held, and return what they give, by port.

        While `profile` is on, each section runs by itself and is measured. Raises `SambaError` for
        what does not fit the program.
        """
        held = self._feeds.arrays
        if selected.evaluates:
            held = {port: held[port] for port in self._evaluated if port in held}
        try:
            return self._run(held, selected, hyperparams, profile)
        except self._refusal as error:
            from sambarun.training.classes import with_ranges

            told = with_ranges(error, self.program, self._feeds.given())
            raise SambaError(reworded(str(told), self.inputs)) from error

    def _run(
        self,
        held: Mapping[str, np.ndarray],
        selected: Selection,
        hyperparams: Mapping[str, float],
        profile: RuntimeProfile,
    ) -> dict[str, np.ndarray]:
        if profile.enabled:
            found = self.executable.profile(held, selected, hyperparams=hyperparams)
            profile.add(found.spans)
            return found.outputs
        return self.executable.run(held, selected, hyperparams=hyperparams)

    def argins(self) -> Mapping[str, float]:
        """Return the values of the hyperparameters now."""
        return self.executable.argins

    def hold(self, inputs: Mapping[str, Tensor]) -> None:
        """Take `inputs`, by samba's names, for the next run and those that follow.

        Raises `SambaError` for names that are no inputs.
        """
        ports = self.inputs
        if not inputs.keys() <= ports.keys():
            unknown = [name for name in inputs if name not in ports and name not in self.unused]
            if unknown:
                raise SambaError(no_such_inputs(unknown, ports, self.seeds.values()))
            inputs = {name: tensor for name, tensor in inputs.items() if name in ports}
        self._feeds.take(inputs, ports)

    def start_from(self, gradients: Mapping[str, Tensor]) -> None:
        """Let the backward pass start from ones, except the outputs that `gradients` has."""
        for port in self.seeds.values():
            self._feeds.start_with_ones(port)
        self.hold(gradients)

    def read(self, name: str) -> Tensor:
        """Return a copy of what `name` holds. Raises `SambaError` where it holds nothing."""
        symbol = self._symbol(name)
        held = self._feeds.find(symbol, self._types[symbol])
        if held is not None:
            return held
        default = self._seed(symbol)
        if default is not None:
            return default
        from sambarun import RunError

        try:
            found = self.executable.read(symbol)[symbol]
        except RunError as error:
            raise SambaError(reworded(str(error), {name: symbol})) from error
        return from_array(found, self._types[symbol])

    def find(self, name: str) -> Tensor | None:
        """Return a copy of what `name` holds, None where there is no such thing now."""
        try:
            return self.read(name)
        except SambaError:
            return None

    def write(self, name: str, value: Tensor) -> None:
        """Overwrite what `name` holds. Raises `SambaError` for what does not fit there."""
        symbol = self._symbol(name)
        kind, shape = torch_type(self._types[symbol]), self._shapes[symbol]
        if tuple(value.shape) != shape or not holds(kind, value):
            raise SambaError(misfit(name, (kind, shape), value))
        given = value.to(kind)
        if symbol in self._input_symbols:
            self._feeds.take({symbol: given}, {symbol: symbol})
        else:
            self.executable.write({symbol: to_array(given)})

    def writable(self, name: str) -> bool:
        """Tell whether `name` is something that `write` can overwrite."""
        symbol = self._resolve(name)
        if symbol is None or symbol in self._constants:
            return False
        return self.keeps_parameters or symbol in self._input_symbols

    def is_constant(self, name: str) -> bool:
        """Tell whether `name` is a tensor whose values are in a program that has states beside."""
        return self.keeps_parameters and self._resolve(name) in self._constants

    @cached_property
    def _constants(self) -> frozenset[str]:
        numbers = {index for section in self.program.sections for index in section.weights}
        return frozenset(self.program.symbols[index].name for index in numbers)

    def result(self, name: str, results: Mapping[str, np.ndarray]) -> SambaTensor:
        """Return the tensor `name` from the results of a run, or else from memory."""
        port = self.outputs.get(name, name)
        found = results.get(port)
        if found is None:
            return named_tensor(self.read(name), name)
        return named_tensor(from_array(found, self._port_types[port]), name)

    def weights(self) -> list[str]:
        """Return the names of all parameters, samba's where it has one."""
        from pef.program import SymbolKind
        from pef.states import states_of

        names = {symbol: name for name, symbol in self.symbols.items()}
        packs = states_of(self.program).flat
        return [
            names.get(symbol.name, symbol.name)
            for index, symbol in enumerate(self.program.symbols)
            if symbol.kind is SymbolKind.WEIGHT and index not in packs
        ]

    def described(self, name: str) -> tuple[torch.dtype, tuple[int, ...]] | None:
        """Return the type and shape of `name`, None if the program does not know it."""
        symbol = self._resolve(name)
        if symbol is None:
            return None
        return torch_type(self._types[symbol]), self._shapes[symbol]

    def _symbol(self, name: str) -> str:
        found, base = self._resolve(name), name.removesuffix(_GRAD)
        if found is None and base in self.outputs:
            raise SambaError(no_such_gradient(base))
        if found is None and base != name and self._resolve(base):
            raise SambaError(no_gradient_kept(base))
        if found is None:
            raise SambaError(f"the PEF has no tensor '{name}'{self._similar(name)}")
        return found

    def _resolve(self, name: str) -> str | None:
        """Return the symbol called `name` by samba, or by the program."""
        found = self.symbols.get(name)
        if found is None and _PART in name:  # the gradient of something, or state of an optimizer
            base, _, suffix = name.rpartition(_PART)
            port = self.outputs.get(base) if suffix == "grad" else None
            found = f"{port or self.symbols.get(base, base)}{_PART}{suffix}"
        return next((known for known in (found, name) if known in self._types), None)

    def _similar(self, name: str) -> str:
        from pef.wording import did_you_mean

        return did_you_mean(name, [*self.symbols, *self._types])

    def _seed(self, symbol: str) -> Tensor | None:
        """Return the gradient an output has that nobody gave another: ones."""
        if symbol not in self._input_symbols or symbol not in self._starts:
            return None
        return torch.ones(self._shapes[symbol], dtype=torch_type(self._types[symbol]))

    @cached_property
    def _starts(self) -> frozenset[str]:
        """The symbols that backward passes start from."""
        ports = (port for graph in self.program.graphs for port in graph.outputs)
        symbols = self.program.symbols
        return frozenset(symbols[p.gradient].name for p in ports if p.gradient is not None)

    @cached_property
    def _types(self) -> Mapping[str, int]:
        return {symbol.name: symbol.dtype for symbol in self.program.symbols}

    @cached_property
    def _port_types(self) -> Mapping[str, int]:
        ports = self.program.graphs[0].outputs
        return {port.name: self.program.symbols[port.symbol].dtype for port in ports}

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {
            symbol.name: tuple(dim for dim in symbol.shape if isinstance(dim, int))
            for symbol in self.program.symbols
            if symbol.shape is not None
        }

    @cached_property
    def _input_symbols(self) -> frozenset[str]:
        ports = [port for graph in self.program.graphs for port in graph.inputs]
        return frozenset(self.program.symbols[port.symbol].name for port in ports)

    def _ports(self, ports: Iterable[Port]) -> dict[str, str]:
        aliases: dict[int, list[str]] = {}
        for alias in self.program.aliases:
            aliases.setdefault(alias.symbol, []).append(alias.name)
        found = {port.name: port.name for port in ports}
        for port in ports:
            found.update((name, port.name) for name in aliases.get(port.symbol, ()))
        return found


def application_of(program: Program) -> dict[str, object]:
    """Return what the application stored in `program`."""
    found = json.loads(program.producer.options).get("application")
    return found if isinstance(found, dict) else {}
