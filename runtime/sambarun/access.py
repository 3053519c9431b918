"""Reading and writing of symbols by name, between runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

import pef
from pef import dtypes
from pef.arguments import BY_NAME, NAME, Kind, some
from pef.graphs import callers
from pef.wording import did_you_mean

from .arguments import items, require
from .arrays import Array, from_bytes, is_bindable
from .errors import RunError
from .image import Image
from .inputs import Expected, convert_all
from .memory import Memory, Tensor
from .state import State
from .weights import static_shape

_BYTE = 8
_NAMES = some(NAME, "names of symbols")
_VALUES = Kind("a dict of arrays by the names of symbols", BY_NAME.fits)


class Access:
    """The memory of one executable by the names of symbols.

    A symbol has its own name, those of public inputs and outputs behind which it stands (in the
    first graph that has them, or after the name of their graph or model: `decode.x`), and its
    further names (aliases), in this order.
    """

    def __init__(self, image: Image, memory: Memory, state: State) -> None:
        self._image = image
        self._memory = memory
        self._state = state
        program = image.program
        self._names = {alias.name: alias.symbol for alias in program.aliases}
        called = callers([graph.name for graph in program.graphs], program.requires.features)
        for graph, names in reversed([*zip(program.graphs, called, strict=True)]):
            for port in (*graph.inputs, *graph.outputs):
                self._names |= {f"{name}.{port.name}": port.symbol for name in names}
                self._names[port.name] = port.symbol
        self._names.update((symbol.name, i) for i, symbol in enumerate(program.symbols))
        self._constants = {index for section in program.sections for index in section.weights}

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Return copies of symbols, which must hold a value. Raises `RunError` for all problems."""
        names = items("names", names, _NAMES)
        problems, found = [], {}
        for name in names:
            index = self._names.get(name)
            if index is None:
                problems.append(self._unknown(name))
            elif index in self._constants:
                found[name] = self._content(index)
            elif index in self._memory.kept:
                found[name] = _copied(self._memory.kept[index])
            elif index in self._state.absent or not self._memory.holds(index):
                problems.append(f"'{name}' has no value now: run what computes it first.")
            else:
                found[name] = self._memory.view(index).copy()
        if problems:
            raise RunError("\n".join(problems))
        return found

    def write(self, given: Mapping[str, object]) -> None:
        """Copy values to where runs read them. Raises `RunError` for all problems, writes nothing.

        Inputs get memory of their own, which later runs read if they are not given another value.
        """
        require(values=(given, _VALUES))
        problems = [self._unknown(name) for name in given if name not in self._names]
        expected = {}
        for name in given:
            index = self._names.get(name)
            if index is not None:
                problem = self._why_not(name, index)
                problems += [problem] if problem else []
                expected[name] = Expected.of(name, index, self._image.program.symbols[index])
        feeds, wrong = convert_all(expected, {name: given[name] for name in expected})
        problems += wrong
        if problems:
            raise RunError("\n".join(problems))
        for index, tensor in feeds.tensors.items():
            is_input = self._image.program.symbols[index].kind is pef.SymbolKind.INPUT
            if is_input and index not in self._memory.shared:
                self._memory.keep(index, tensor)
            else:
                self._memory.write(index, tensor)
                self._state.absent.discard(index)

    def input_buffer(self, name: str) -> Array:
        """Return the memory that an input keeps. Raises `RunError` if it has none of its own."""
        require(name=(name, NAME))
        index = self._names.get(name)
        if index is None:
            raise RunError(self._unknown(name))
        symbol, memory = self._image.program.symbols[index], self._memory
        fixed = static_shape(symbol) is not None and is_bindable(symbol.type)
        if symbol.kind is not pef.SymbolKind.INPUT or not fixed or index in memory.shared:
            raise RunError(f"'{name}' has no memory of its own: it is no input of a fixed size.")
        if dtypes.BY_NUMBER[symbol.dtype].bits < _BYTE:
            raise RunError(f"'{name}' has elements smaller than a byte: give it to `run`.")
        return memory.kept_place(index)

    def _unknown(self, name: str) -> str:
        return f"There is no symbol '{name}'{did_you_mean(name, self._names)}."

    def _why_not(self, name: str, index: int) -> str:
        """Return why a symbol cannot be written, or nothing."""
        symbol = self._image.program.symbols[index]
        if index in self._constants:
            return f"'{name}' cannot be written: it is a constant of the program."
        if not is_bindable(symbol.type):
            return f"'{name}' cannot be written: it is {symbol.type}, no tensor of numbers."
        if symbol.kind is not pef.SymbolKind.INPUT and not self._memory.has_place(index):
            return f"'{name}' cannot be written: it has no place in the planned memory."
        return ""

    def _content(self, index: int) -> Array:
        """Return what the file holds for a constant."""
        symbol = self._image.program.symbols[index]
        found = self._image.content(symbol)
        return _copied(found) if isinstance(found, Tensor) else found.copy()


def _copied(tensor: Tensor) -> Array:
    raw = tensor.owner.reshape(-1).view(np.uint8)
    return np.array(from_bytes(raw, tensor.dtype, tensor.shape))
