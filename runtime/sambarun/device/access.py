"""Reading and writing of symbols by name, between runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial

import pef
from pef import dtypes
from pef.arguments import ANY, NAME, named, some
from pef.graphs import AmbiguousNameError, Namespace, symbol_names
from pef.wording import did_you_mean
from sambarun.arrays import Array, is_bindable
from sambarun.errors import RunError, items, require

from .image import Image
from .inputs import Expected, convert_all
from .memory import Memory, TensorAt
from .state import StateStore
from .weights import static_shape

_BYTE = 8
_NAMES = some(NAME, "names of symbols")
_VALUES = named(ANY, "a dict of arrays by the names of symbols")


class Access:
    """The memory of one executable by the names of symbols.

    A symbol has its own name, those of public inputs and outputs behind which it stands (in the
    first graph that has them, or after the name of their graph or model: `decode.x`), and its
    further names (aliases), in this order. Where there are several models, the name of a graph may
    stand in front of the symbols that it uses.
    """

    def __init__(self, image: Image, memory: Memory, state: StateStore) -> None:
        self._image = image
        self._memory = memory
        self._state = state
        program = image.program
        self._constants = {index for section in program.sections for index in section.weights}
        self._found: dict[str, int] = {}
        self._writable: dict[str, Expected] = {}

    @cached_property
    def _names(self) -> Namespace[int]:
        """What names mean, as indices of symbols; most programs never ask."""
        return symbol_names(self._image.program)

    def _index(self, name: str, problems: list[str]) -> int | None:
        """Return the symbol that `name` means; add to `problems` if it is none, or several."""
        known = self._found.get(name)
        if known is not None:
            return known
        try:
            found = self._names.find(name)
        except AmbiguousNameError as error:
            problems.append(f"{error}.")
            return None
        if not found:
            hint = did_you_mean(name, self._names.known)
            problems.append(f"There is no symbol '{name}'{hint}.")
            return None
        self._found[name] = found[0]
        return found[0]

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Return copies of symbols, which must hold a value. Raises `RunError` for all problems."""
        names = items("names", names, _NAMES)
        problems: list[str] = []
        found = {}
        states = self._state.views  # which stay where they are
        for name in names:
            index = self._index(name, problems)
            if index is None:
                continue
            if index in self._constants:
                found[name] = self._content(index)
            elif index in self._memory.kept:
                found[name] = self._memory.kept[index].view().copy()
            elif index in self._state.torn:
                problems.append(self._state.why_torn([index]))
            elif index in self._state.absent or not self._memory.holds(index):
                problems.append(
                    f"'{name}' has no value now: run what computes it first{self._how(index)}."
                )
            else:
                view = states.get(index)
                found[name] = (self._memory.view(index) if view is None else view).copy()
        if problems:
            raise RunError("\n".join(problems))
        return found

    def _how(self, index: int) -> str:
        """Return how a run keeps a symbol, where others do not."""
        return ", with copy=False to keep it here" if index in self._memory.for_caller else ""

    def write(self, given: Mapping[str, object]) -> bool:
        """Copy values to where runs read them; return whether a seed of masks is among them.

        Inputs get memory of their own, which later runs read if they are not given another value.
        Raises `RunError` for all problems, and writes nothing then.
        """
        require(values=(given, _VALUES))
        problems: list[str] = []
        expected = {}
        for name in given:
            known = self._writable.get(name) or self._expected(name, problems)
            if known is not None:
                expected[name] = known
        feeds, wrong = convert_all(expected, {name: given[name] for name in expected})
        problems += wrong
        problems += filter(
            None,
            (
                self._state.why_no_number(known.number, name, feeds.tensors[known.number].view())
                for name, known in expected.items()
                if known.number in feeds.tensors
            ),
        )
        if problems:
            raise RunError("\n".join(problems))
        feeds.copy_views_of(self._memory)
        self._memory.whole(partial(self._put, feeds.tensors))
        return self._state.seeds(feeds.tensors)

    def _put(self, tensors: Mapping[int, TensorAt]) -> None:
        for index, tensor in tensors.items():
            is_input = self._image.program.symbols[index].kind is pef.SymbolKind.INPUT
            if is_input and index not in self._memory.shared:
                self._memory.keep(index, tensor)
            else:
                self._memory.write(index, tensor)
                self._state.has(index)

    def input_buffer(self, name: str) -> Array:
        """Return the memory that an input keeps. Raises `RunError` if it has none of its own."""
        require(name=(name, NAME))
        problems: list[str] = []
        index = self._index(name, problems)
        if index is None:
            raise RunError(problems[0])
        symbol, memory = self._image.program.symbols[index], self._memory
        fixed = static_shape(symbol) is not None and is_bindable(symbol.type)
        if symbol.kind is not pef.SymbolKind.INPUT or not fixed or index in memory.shared:
            raise RunError(f"'{name}' has no memory of its own: it is no input of a fixed size.")
        if dtypes.BY_NUMBER[symbol.dtype].bits < _BYTE:
            raise RunError(f"'{name}' has elements smaller than a byte: give it to `run`.")
        return memory.kept_place(index)

    def _expected(self, name: str, problems: list[str]) -> Expected | None:
        """Return what can be written to `name`; add to `problems` if that is nothing."""
        index = self._index(name, problems)
        if index is None:
            return None
        found = Expected.of(name, index, self._image.program.symbols[index])
        if problem := self._why_not(name, index):
            problems.append(problem)
        else:
            self._writable[name] = found
        return found

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
        return (found.view() if isinstance(found, TensorAt) else found).copy()
