"""A program of one model on the device: its inputs between runs, and runs of its sections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pef.graphs import gradient_name
from pef.program import Section, SectionType
from pef.symbols import Duration
from sambarun import Executable, Profile, RunError, Selection
from sambarun.training.classes import with_ranges

from .arrays import copied, torch_type
from .device_session import DeviceSession
from .errors import HostError
from .held_inputs import HeldInputs, Values, refused
from .wording import no_such_inputs, reworded


class ModelSession(DeviceSession):
    """Runs sections of a program on inputs that stay until others are given.

    `values` gives those of tensors on the meta device; without it they are refused.
    """

    def __init__(
        self,
        executable: Executable,
        api: str,
        values: Values = refused,
        unused: Iterable[str] = (),
    ) -> None:
        super().__init__(executable, api, unused)
        self._held = HeldInputs(executable, self._input_symbols, values)

    @property
    def calls(self) -> range:
        """The calls of the model: of its training step, if it trains."""
        graph = self.program.graphs[0]
        return range(graph.first_call, graph.first_call + graph.calls)

    @cached_property
    def inputs(self) -> Mapping[str, str]:
        """The input ports by the API's names, and by the program's own.

        Among them are the gradients of the outputs that start the backward pass.
        """
        found = self.ports_by_name(port for graph in self.program.graphs for port in graph.inputs)
        return {**found, **{gradient_name(name): port for name, port in self.seeds.items()}}

    @cached_property
    def seeds(self) -> Mapping[str, str]:
        """The gradients of outputs that start the backward pass, by the names of these."""
        graph = self.program.graphs[0]
        given = {port.symbol: port.name for port in graph.inputs}
        starts = {p.name: given[p.gradient] for p in graph.outputs if p.gradient is not None}
        return {name: starts[port] for name, port in self.outputs.items() if port in starts}

    def hold(self, inputs: Mapping[str, Tensor]) -> None:
        """Take `inputs`, by name, for the next run and those that follow.

        Raises `HostError` for names that are no inputs.
        """
        ports = self.inputs
        if not inputs.keys() <= ports.keys():
            unknown = [name for name in inputs if name not in ports and name not in self.unused]
            if unknown:
                raise HostError(no_such_inputs(unknown, ports, self.seeds.values()))
            inputs = {name: tensor for name, tensor in inputs.items() if name in ports}
        self._held.take(inputs, ports)

    def start_from(self, gradients: Mapping[str, Tensor]) -> None:
        """Let the backward pass start from ones, except the outputs that `gradients` has."""
        for port in self.seeds.values():
            self._held.start_with_ones(port)
        if gradients:
            self.hold(gradients)

    def run(self, selected: Selection, hyperparams: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Run sections on the inputs held, and return what they give, by port.

        Raises `HostError` for what does not fit the program.
        """
        given, rates = self._given(selected), hyperparams or None
        try:
            # Kept in memory too: programs read results there.
            return copied(self.executable.run(given, selected, copy=False, hyperparams=rates))
        except RunError as error:
            raise self._worded(error) from error

    def kept(self) -> dict[str, np.ndarray]:
        """Return copies of what the backward pass reads of the forward pass that ran last.

        With it other forward passes may run before the backward pass of this one: `restored`. What
        the model was given is not part of it. Raises `HostError` before a forward pass.
        """
        try:
            return self.executable.read(*self._crossing, *self._moving)
        except RunError as error:
            raise HostError(str(error)) from error

    @contextmanager
    def restored(self, kept: Mapping[str, np.ndarray]) -> Iterator[None]:
        """Let a backward pass inside read what `kept` returned, after other forward passes.

        Buffers that those have moved are as they were for a while.
        """
        now = self.executable.read(*self._moving) if self._moving else {}
        self.executable.write(kept)
        try:
            yield
        finally:
            if now:
                self.executable.write(now)

    def profile(self, selected: Selection, hyperparams: Mapping[str, float]) -> Profile:
        """Run as `run` does, each section by itself, and return how long each took, too."""
        given = self._given(selected)
        try:
            return self.executable.profile(given, selected, hyperparams=hyperparams)
        except RunError as error:
            raise self._worded(error) from error

    def read(self, name: str) -> Tensor:
        """Return a copy of what `name` holds. Raises `HostError` where it holds nothing.

        A gradient that the backward pass starts from is ones until another is given.
        """
        symbol = self.symbol(name)
        held = self._held.find(symbol, self._types[symbol])
        if held is not None:
            return held
        if symbol in self._input_symbols and symbol in self._starts:
            return torch.ones(self._shapes[symbol], dtype=torch_type(self._types[symbol]))
        return super().read(name)

    def _given(self, selected: Selection) -> Mapping[str, np.ndarray]:
        """Return the inputs that a run is handed; others are in the memory of the device."""
        held = self._held.arrays
        if selected.evaluates:
            return {port: held[port] for port in self._evaluated if port in held}
        return held

    def _worded(self, error: RunError) -> HostError:
        told = with_ranges(error, self.program, self._held.given())
        return HostError(reworded(str(told), self.inputs))

    def _put(self, symbol: str, value: Tensor) -> None:
        if symbol in self._input_symbols:
            self._held.take({symbol: value}, {symbol: symbol})
        else:
            super()._put(symbol, value)

    def _is_held(self, symbol: str) -> bool:
        return symbol in self._input_symbols

    @cached_property
    def _evaluated(self) -> tuple[str, ...]:
        return tuple(port.name for port in self.program.graphs[-1].inputs)

    @cached_property
    def _input_symbols(self) -> frozenset[str]:
        ports = [port for graph in self.program.graphs for port in graph.inputs]
        return frozenset(self.program.symbols[port.symbol].name for port in ports)

    @cached_property
    def _crossing(self) -> tuple[str, ...]:
        """The symbols that the backward pass reads and has not from states, inputs or itself."""
        backward = self._sections(SectionType.BCKWD)
        own = {index for section in backward for index in section.outputs}
        read = dict.fromkeys(index for section in backward for index in section.inputs)
        symbols = (self.program.symbols[index] for index in read if index not in own)
        return tuple(
            symbol.name
            for symbol in symbols
            if symbol.duration is Duration.TRANSIENT and symbol.name not in self._input_symbols
        )

    @cached_property
    def _moving(self) -> tuple[str, ...]:
        """The states that forward passes overwrite and the backward pass reads."""
        backward = self._sections(SectionType.BCKWD)
        written = {index for s in self._sections(SectionType.FWD) for index in s.outputs}
        read = dict.fromkeys(index for section in backward for index in section.inputs)
        symbols = (self.program.symbols[index] for index in read if index in written)
        return tuple(symbol.name for symbol in symbols if symbol.duration is Duration.STATE)

    def _sections(self, kind: SectionType) -> list[Section]:
        """Return the sections of one kind, in the order in which they run."""
        program = self.program
        sections = (program.sections[program.schedule[call]] for call in self.calls)
        return [section for section in sections if section.type is kind]

    @cached_property
    def _starts(self) -> frozenset[str]:
        """The symbols that backward passes start from."""
        ports = (port for graph in self.program.graphs for port in graph.outputs)
        symbols = self.program.symbols
        return frozenset(symbols[p.gradient].name for p in ports if p.gradient is not None)
