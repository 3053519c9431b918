"""The states of a program: what they hold, from loading to loading, and which may be missing.

A program whose argins choose (`pef.states.ARGIN_VARIANTS`) keeps momentum that may be zero in all
runs. The program of another version, which left the term out when it was compiled with zero, wrote
checkpoints without it: the momentum was 0, and its buffers are as before the first step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

import pef
from pef.arguments import ANY, named
from pef.program import Section
from pef.states import ZERO_KINDS, States
from pef.wording import listed
from sambarun.arrays import Array
from sambarun.errors import RunError, require

from .host_kernels import seed_names
from .hyperparams import matching, number
from .image import Image
from .memory import Memory, TensorAt

_NAMES_SHOWN = 10
_KEY = 1 << 64
_HYPERPARAMETERS = named(ANY, "a dict of numbers by name, such as {'lr': 0.1},")
# How the parameters that scale, rather than shift, are called.
_SCALES = ("weight", "gamma", "scale", "running_var")


class StateStore:
    """The states of one executable, in its memory.

    By symbol index: `views` of their content, their `kinds`, the `numbers` of their element types,
    which of them are `absent`, that is without content, and which are `torn`: a run that broke off
    may have updated them, but not all that belongs to them.
    """

    def __init__(self, image: Image, memory: Memory) -> None:
        self._image = image
        symbols = image.program.symbols
        self.views: dict[int, Array] = {index: memory.place(index) for index in image.states.own}
        self.kinds = {index: symbols[index].kind for index in image.states.own}
        self.numbers = {index: symbols[index].dtype for index in image.states.own}
        self.absent: set[int] = set()
        self.torn: set[int] = set()
        self._memory = memory
        self._argins = self._argin_views()
        self._options = {argin.name: argin.option for argin in image.program.argins}
        self._options_by_symbol = {argin.symbol: argin.option for argin in image.program.argins}
        self._setters: dict[tuple[str, ...], dict[str, str]] = {}
        self._seeds = seed_names(image.program)
        # Memory begins as zeros, and optimizer state that no step uses is never touched.
        zeros = {index for index in self.views if self._begins_as_zeros(index)}
        self.reset(self.views.keys() - zeros)

    def _argin_views(self) -> dict[str, Array]:
        """Return where argins lie; the format says where only for programs that have states."""
        argins = self._image.program.argins
        lost = [f"'{row.name}'" for row in argins if row.symbol not in self.views]
        if lost:
            raise RunError(
                f"{self._image.file.path} cannot be run: it keeps nothing from run to run, not "
                f"even its argins {listed(lost, _NAMES_SHOWN, ', ')}. Compile the model again."
            )
        return {row.name: self.views[row.symbol] for row in argins}

    def reset(self, symbols: Iterable[int]) -> None:
        """Give states their first content: what the file holds, zeros, or none."""
        for index in symbols:
            symbol = self._image.program.symbols[index]
            if symbol.data is not None:
                content = self._image.content(symbol)
                assert isinstance(content, TensorAt)  # the rules of the format: states are numbers
                self.views[index].reshape(-1).view(np.uint8)[:] = content.owner
                self._image.file.let_go(symbol.data)
                self.has(index)
            elif self._begins_as_zeros(index):
                self.views[index].fill(0)
                self.has(index)
            else:
                self.absent.add(index)

    def _begins_as_zeros(self, index: int) -> bool:
        symbol = self._image.program.symbols[index]
        return symbol.data is None and symbol.kind in ZERO_KINDS

    def entries(self) -> dict[str, int]:
        """Return the symbols of all states by name, those of tied weights under each name."""
        program = self._image.program
        names = {program.symbols[index].name: index for index in self.views}
        tied = {
            alias.name: alias.symbol
            for alias in program.aliases
            if alias.symbol in self.views and not alias.api
        }
        return {**names, **tied}

    def may_be_missing(self, missing: frozenset[int]) -> frozenset[int]:
        """Return the states among `missing` that a checkpoint may lack: they are zeros then."""
        return may_be_missing(self._image.program, self._image.states, missing)

    def has(self, index: int) -> None:
        """Note that a state has got a content."""
        self.absent.discard(index)
        self.torn.discard(index)

    def take(
        self, anew: Iterable[int], contents: Mapping[int, Array], then: Callable[[], None]
    ) -> None:
        """Reset the states in `anew`, give others new content, do what is `then` to be done: all.

        An interrupt comes before or when all of it is done, whenever it was.
        """
        self._memory.whole(partial(self._take, frozenset(anew), contents, then))

    def _take(
        self, anew: Iterable[int], contents: Mapping[int, Array], then: Callable[[], None]
    ) -> None:
        self.reset(anew)
        for index, content in contents.items():
            np.copyto(self.views[index], content)
            self.has(index)
        then()

    def copy(self, kinds: Iterable[pef.SymbolKind]) -> dict[str, Array]:
        """Return copies of the states of these kinds that are there, by name.

        Raises `RunError` if some of them are torn.
        """
        wanted = frozenset(kinds)
        self.require(frozenset(index for index in self.torn if self.kinds[index] in wanted))
        symbols = self._image.program.symbols
        return {
            symbols[index].name: view.copy()
            for index, view in self.views.items()
            if symbols[index].kind in wanted and index not in self.absent
        }

    def take_from(self, other: StateStore) -> None:
        """Take over the content of another executable of the same program."""
        for index, view in self.views.items():
            np.copyto(view, other.views[index])
        self.absent = set(other.absent)
        self.torn = set(other.torn)

    def why_torn(self, symbols: Iterable[int]) -> str:
        """Return what to say of torn states, and the cure."""
        names = [f"'{self._image.program.symbols[index].name}'" for index in sorted(symbols)]
        return (
            f"A run broke off while it updated {len(names)} of the program's states: "
            f"{listed(names, _NAMES_SHOWN, ', ')}. They may be half of one step and half of the "
            f"next. Load a checkpoint, or write all of them anew."
        )

    def require(self, reads: frozenset[int]) -> None:
        """Raise `RunError` if a state that a plan `reads` has no content, or is torn."""
        torn = self.torn & reads
        if torn:
            raise RunError(self.why_torn(torn))
        missing = sorted(self.absent & reads)
        if missing:
            names = [f"'{self._image.program.symbols[index].name}'" for index in missing]
            raise RunError(
                f"The program holds no values for {len(names)} of its parameters and buffers: "
                f"{listed(names, _NAMES_SHOWN, ', ')}. Load a checkpoint (--load FILE), or "
                f"initialise them from a seed (--init random:SEED)."
            )

    @property
    def program_hash(self) -> str:
        """The SHA-256 of the metadata of the program, which covers all of its content."""
        return self._image.file.header.digest.hex()

    @property
    def argins(self) -> dict[str, float]:
        """The values of all argins."""
        return {name: float(view) for name, view in self._argins.items()}

    @property
    def optimizers(self) -> list[str]:
        """What the optimizers of the program are called, sorted: each has a learning rate."""
        argins = self._image.program.argins
        return sorted(argin.group for argin in argins if argin.option == "lr")

    def zeros(self, argins: Iterable[int]) -> frozenset[int]:
        """Return the symbols of those of `argins` that are zero now."""
        views = self.views
        return frozenset([symbol for symbol in argins if not views[symbol]])

    def set_hyperparams(self, given: Mapping[str, float]) -> bool:
        """Set the argins that the names in `given` match; return whether a seed is among them.

        Raises `RunError` for names that match none and for values that are no numbers; nothing is
        set then.
        """
        if type(given) is not dict:  # what is in it is looked at by name
            require(hyperparams=(given, _HYPERPARAMETERS))
        names = tuple(given)
        setters = self._setters.get(names)
        if setters is None:
            setters = self._setters[names] = matching(names, self._argins)
        options = self._options
        numbers = {
            argin: number(options[argin], name, given[name]) for argin, name in setters.items()
        }
        self._memory.whole(partial(self._set, numbers))
        return not self._seeds.isdisjoint(numbers)

    def why_no_number(self, index: int, name: str, value: Array) -> str:
        """Return why the argin `index`, here called `name`, cannot be `value`; else nothing.

        So it does for what is no argin.
        """
        option = self._options_by_symbol.get(index)
        try:
            if option is not None:
                number(option, name, value.item())
        except RunError as error:
            return str(error)
        return ""

    def seeds(self, symbols: Iterable[int]) -> bool:
        """Tell whether an argin that seeds masks is among `symbols`."""
        rows = self._image.program.argins
        return not {row.symbol for row in rows if row.name in self._seeds}.isdisjoint(symbols)

    def _set(self, numbers: Mapping[str, float]) -> None:
        for argin, value in numbers.items():
            self._argins[argin][...] = value

    def initialize(self, seed: int) -> None:
        """Draw values for all states without content; equal seeds draw equal values."""
        for index in sorted(self.absent):
            symbol = self._image.program.symbols[index]
            self.views[index][...] = _first_values(symbol, self.views[index].shape, seed)
        self.absent.clear()


def _first_values(symbol: pef.Symbol, shape: tuple[int, ...], seed: int) -> Array | float:
    """Return what a parameter or buffer of this name and shape starts as.

    Two or more dimensions: uniform in +-1/sqrt(fan in), as PyTorch's Linear and Conv; the fan in is
    the number of elements over all dimensions but the first. Fewer: ones where the name says that
    it scales, else zeros.
    """
    if symbol.kind is pef.SymbolKind.WEIGHT and len(shape) > 1:
        bound = 1.0 / math.sqrt(max(math.prod(shape[1:]), 1))
        site = int.from_bytes(hashlib.sha256(symbol.name.encode()).digest()[:8], "little")
        generator = np.random.Generator(np.random.Philox(key=site << 64 | seed % _KEY))
        return generator.uniform(-bound, bound, shape)
    last = symbol.name.replace("__", ".").rpartition(".")[2].lower()
    return 1.0 if last in _SCALES else 0.0


def may_be_missing(program: pef.Program, states: States, missing: frozenset[int]) -> frozenset[int]:
    """Return the symbols among `missing` that may be zeros instead.

    Argins that some update can do without when they are zero, and what no section reads if the
    missing ones of them are.
    """
    zeros = {s for section in program.sections for v in section.variants for s in v.zeros}
    argins = frozenset(zeros & missing)
    packs = states.packs.items()
    homes = {part: frozenset({part, flat}) for flat, parts in packs for part in parts}
    unread = {
        symbol
        for symbol in missing
        if program.symbols[symbol].kind is pef.SymbolKind.OPT_STATE
        and _is_unread(program, homes.get(symbol, frozenset({symbol})), argins)
    }
    return argins | unread


def _is_unread(program: pef.Program, homes: frozenset[int], argins: frozenset[int]) -> bool:
    """Tell whether every section that binds one of `homes` does without while `argins` are zero."""
    binding = [section for section in program.sections if not homes.isdisjoint(section.inputs)]
    return bool(binding) and all(
        any(_lacks(program, section, each, homes) for each in _at_zero(section, argins))
        for section in binding
    )


def _at_zero(section: Section, argins: frozenset[int]) -> Iterator[int]:
    """Yield the programs of `section` that run when `argins` are zero, but not always."""
    for variant in section.variants:
        if variant.zeros and argins.issuperset(variant.zeros):
            yield variant.program


def _lacks(program: pef.Program, section: Section, number: int, homes: frozenset[int]) -> bool:
    formal = program.programs[number].inputs
    return not any(
        name and symbol in homes for symbol, name in zip(section.inputs, formal, strict=True)
    )
