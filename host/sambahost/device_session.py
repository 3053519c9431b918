"""A loaded program: what it is and holds, by the names of an API, and what can be done with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pef.graphs import belonging, gradient_name, taken_apart
from pef.program import Port
from pef.states import has_states, is_training, states_of
from pef.symbols import SymbolKind
from pef.wording import did_you_mean
from sambarun import Executable, Profile, RunError, Selection

from .arrays import dense, from_array, holds, to_array, torch_type
from .errors import HostError, NoStartError
from .wording import misfit, no_gradient_kept, no_such_start, reworded


class DeviceSession(ABC):
    """A program on the device, its symbols by the names of an API and by the program's own.

    Values are torch tensors on the host that share no memory with the device. `api` is whose
    aliases in the program count. `unused` are inputs of models that the program does not read: they
    are taken and left.
    """

    def __init__(self, executable: Executable, api: str, unused: Iterable[str] = ()) -> None:
        self.executable = executable
        self.program = executable.program
        self.unused = frozenset(unused)
        self._api = api
        self._resolved: dict[str, str | None] = {}

    # What runs.

    @property
    @abstractmethod
    def calls(self) -> range:
        """The calls of the graph that runs: of the training step, if it trains."""

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, str]:
        """The input ports by the API's names, gradients that start the backward pass among them."""

    @property
    @abstractmethod
    def seeds(self) -> Mapping[str, str]:
        """The gradients of outputs that start the backward pass, by the names of these."""

    @abstractmethod
    def hold(self, inputs: Mapping[str, Tensor]) -> None:
        """Take `inputs`, by name, for the next run and those that follow.

        Raises `HostError` for names that are no inputs.
        """

    @abstractmethod
    def start_from(self, gradients: Mapping[str, Tensor]) -> None:
        """Let the backward pass start from ones, except the outputs that `gradients` has."""

    @abstractmethod
    def run(self, selected: Selection, hyperparams: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Run sections on the inputs held, and return what they give, for `result`.

        Raises `HostError` for what does not fit the program.
        """

    @abstractmethod
    def profile(self, selected: Selection, hyperparams: Mapping[str, float]) -> Profile:
        """Run as `run` does, each section by itself, and return how long each took, too."""

    def prepare(self, selected: Iterable[Selection]) -> None:
        """Make ready what runs need, so that the first of them takes no longer than others.

        Raises `HostError` for sections that the program does not have.
        """
        try:
            for part in selected:
                self.executable.prepare(part)
        except RunError as error:
            raise HostError(str(error)) from error

    def close(self) -> None:
        """Give back the memory of the device."""
        self.executable.close()

    # What is called how.

    @cached_property
    def symbols(self) -> Mapping[str, str]:
        """The names of symbols in the program, by the API's names."""
        program = self.program
        return {
            alias.name: program.symbols[alias.symbol].name
            for alias in program.aliases
            if alias.api == self._api
        }

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The output ports by the API's names; the program's own names do too."""
        return self.ports_by_name(self.program.graphs[0].outputs)

    def ports_by_name(self, ports: Iterable[Port]) -> dict[str, str]:
        """Return the names of `ports` by every name that they have, the program's own first."""
        aliases: dict[int, list[str]] = {}
        for alias in self.program.aliases:
            aliases.setdefault(alias.symbol, []).append(alias.name)
        ports = list(ports)
        found = {port.name: port.name for port in ports}
        for port in ports:
            found.update((name, port.name) for name in aliases.get(port.symbol, ()))
        return found

    def weights(self) -> list[str]:
        """Return the names of all parameters, the API's where it has one."""
        names = {symbol: name for name, symbol in self.symbols.items()}
        packs = states_of(self.program).flat
        return [
            names.get(symbol.name, symbol.name)
            for index, symbol in enumerate(self.program.symbols)
            if symbol.kind is SymbolKind.WEIGHT and index not in packs
        ]

    # What the program is.

    @property
    def trains(self) -> bool:
        """Whether the program has backward sections."""
        return is_training(self.program)

    @property
    def updates(self) -> bool:
        """Whether optimizers update parameters."""
        return any(section.type.name == "OPT" for section in self.program.sections)

    @cached_property
    def keeps_parameters(self) -> bool:
        """Whether parameters live on the device, and are not constants inside of the program."""
        return has_states(self.program)

    def described(self, name: str) -> tuple[torch.dtype, tuple[int, ...]] | None:
        """Return the type and shape of `name`, None if the program does not know it."""
        symbol = self._resolve(name)
        return None if symbol is None else self.kind_of(symbol)

    def kind_of(self, symbol: str) -> tuple[torch.dtype, tuple[int, ...]]:
        """Return the type and shape of `symbol`, which has a fixed one."""
        return torch_type(self._types[symbol]), self._shapes[symbol]

    def is_constant(self, name: str) -> bool:
        """Tell whether `name` is a tensor whose values are in a program that has states beside."""
        return self.keeps_parameters and self._resolve(name) in self._constants

    def writable(self, name: str) -> bool:
        """Tell whether `name` is something that `write` can overwrite."""
        symbol = self._resolve(name)
        if symbol is None or symbol in self._constants:
            return False
        return self.keeps_parameters or self._is_held(symbol)

    # What it holds.

    def argins(self) -> Mapping[str, float]:
        """Return the values of the hyperparameters now."""
        return self.executable.argins

    def read(self, name: str) -> Tensor:
        """Return a copy of what `name` holds. Raises `HostError` where it holds nothing."""
        symbol = self.symbol(name)
        try:
            found = self.executable.read(symbol)[symbol]
        except RunError as error:
            raise HostError(reworded(str(error), {name: symbol})) from error
        return from_array(found, self._types[symbol])

    def find(self, name: str) -> Tensor | None:
        """Return a copy of what `name` holds, None where there is no such thing now."""
        try:
            return self.read(name)
        except HostError:
            return None

    def find_all(self, names: Sequence[str]) -> list[Tensor | None]:
        """Return what `find` does of each of `names`, for which the device is asked once."""
        symbols = [*map(self._resolve, names)]
        if None in symbols or not self._in_memory.issuperset(symbols):
            return [*map(self.find, names)]
        try:
            found = self.executable.read(*filter(None, symbols))
        except RunError:  # some hold nothing
            return [*map(self.find, names)]
        return [from_array(found[each], self._types[each]) for each in symbols if each is not None]

    def write(self, name: str, value: Tensor) -> None:
        """Overwrite what `name` holds. Raises `HostError` for what does not fit there."""
        symbol = self.symbol(name)
        kind, shape = self.kind_of(symbol)
        plain = dense(value)
        if tuple(plain.shape) != shape or not holds(kind, plain):
            raise HostError(misfit(name, (kind, shape), plain))
        self._put(symbol, plain.to(kind))

    def result(self, name: str, results: Mapping[str, np.ndarray]) -> Tensor:
        """Return the tensor `name` from the results of a run, or else from memory."""
        port = self.outputs.get(name, name)
        found = results.get(port)
        return self.read(name) if found is None else from_array(found, self._port_types[port])

    def symbol(self, name: str) -> str:
        """Return the symbol called `name`. Raises `HostError` if there is none, and says why."""
        found = self._resolve(name)
        if found is not None:
            return found
        owner, _ = taken_apart(name)
        if name == gradient_name(owner):
            if owner in self.outputs:
                raise NoStartError(no_such_start(owner))
            if self._resolve(owner):
                raise HostError(no_gradient_kept(owner))
        hint = did_you_mean(name, [*self.symbols, *self._types])
        raise HostError(f"the PEF has no tensor '{name}'{hint}")

    def _resolve(self, name: str) -> str | None:
        """Return the symbol called `name` by the API, or by the program."""
        if name not in self._resolved:  # which is asked for in each step of some programs
            self._resolved[name] = self._sought(name)
        return self._resolved[name]

    def _sought(self, name: str) -> str | None:
        found = self.symbols.get(name)
        owner, what = taken_apart(name)
        if found is None and owner:  # the gradient of something, or state of an optimizer
            port = self.outputs.get(owner) if name == gradient_name(owner) else None
            found = belonging(port or self.symbols.get(owner, owner), what)
        return next((known for known in (found, name) if known in self._types), None)

    def _put(self, symbol: str, value: Tensor) -> None:
        """Overwrite what `symbol` holds by `value`, which is of its type and shape."""
        self.executable.write({symbol: to_array(value)})

    def _is_held(self, symbol: str) -> bool:
        """Tell whether `symbol` is an input whose values are kept on the host between runs."""
        return False

    @cached_property
    def _in_memory(self) -> frozenset[str]:
        """The symbols whose values are on the device alone."""
        return frozenset(name for name in self._types if not self._is_held(name))

    @cached_property
    def _constants(self) -> frozenset[str]:
        numbers = {index for section in self.program.sections for index in section.weights}
        return frozenset(self.program.symbols[index].name for index in numbers)

    @cached_property
    def _types(self) -> Mapping[str, int]:
        return {symbol.name: symbol.dtype for symbol in self.program.symbols}

    @cached_property
    def _port_types(self) -> Mapping[str, int]:
        """The element types of outputs by what a run calls them."""
        ports = self.program.graphs[0].outputs
        return {port.name: self.program.symbols[port.symbol].dtype for port in ports}

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {
            symbol.name: tuple(dim for dim in symbol.shape if isinstance(dim, int))
            for symbol in self.program.symbols
            if symbol.shape is not None
        }
