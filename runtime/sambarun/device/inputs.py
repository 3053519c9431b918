"""Inputs: what the caller gives is checked against what the program expects, all of it at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

import pef
from pef import dtypes
from pef.states import states_of
from pef.wording import did_you_mean, listed
from sambarun.arrays import Array, address_of, is_bindable, to_bytes
from sambarun.errors import RunError

from .memory import Memory, TensorAt, Value
from .weights import static_shape

_INPUT = pef.SymbolKind.INPUT
_NAMES_SHOWN = 10
# Up to this many bytes, copying an input to where it was last time costs less than binding it anew.
STAGED_BYTES = 1 << 16


class Feeds(NamedTuple):
    """Checked inputs by symbol: tensors to bind, and Python objects."""

    tensors: dict[int, TensorAt]
    values: dict[int, Value]

    def copy_views_of(self, memory: Memory) -> None:
        """Copy tensors that are views of `memory`; what owns its elements is nobody's view."""
        if any(tensor.owner.base is not None for tensor in self.tensors.values()):
            memory.separate(self.tensors)


class Expected(NamedTuple):
    """One input: its public name, its symbol and that symbol's number, what fits at a glance."""

    name: str
    number: int
    symbol: pef.Symbol
    dtype: np.dtype[np.generic] | None
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, name: str, index: int, symbol: pef.Symbol) -> Expected:
        """Describe symbol number `index` under its public `name`."""
        dtype = None
        if is_bindable(symbol.type) and dtypes.BY_NUMBER[symbol.dtype].bits >= 8:
            dtype = dtypes.numpy_dtype(symbol.dtype)
        return cls(name, index, symbol, dtype, static_shape(symbol))

    @property
    def label(self) -> str:
        """What to call it in a message."""
        return f"Input '{self.name}'" if self.symbol.kind is _INPUT else f"'{self.name}'"

    def __str__(self) -> str:
        return f"{type_text(self.symbol)}{shape_text(self.symbol.shape)}"


@dataclass(slots=True)
class _Check:
    """The state of one check: problems found, and sizes met for symbolic dimensions."""

    problems: list[str] = field(default_factory=list)
    sizes: dict[str, tuple[int, str]] = field(default_factory=dict)


class Inputs:
    """The inputs of one graph of a program, by name; `states` are symbols that cannot be given."""

    def __init__(self, program: pef.Program, graph: int, states: Collection[int]) -> None:
        self._program = program
        self._graph = graph
        self._states = states
        self._ports = {
            port.name: Expected.of(port.name, port.symbol, program.symbols[port.symbol])
            for port in program.graphs[graph].inputs
        }
        self._others: dict[str, Expected] | None = None
        self._stages = {
            expected.number: _stage(expected)
            for expected in self._ports.values()
            if expected.dtype is not None
            and expected.shape is not None
            and expected.symbol.size <= STAGED_BYTES
        }

    def check(self, given: Mapping[str, object]) -> Feeds:
        """Return `given` ready to be bound, without copies of large contiguous arrays.

        Names are those of the model's inputs, or of any other symbol. Raises `RunError` that lists
        every name the program does not have and every wrong type or shape.
        """
        check = _Check()
        feeds = Feeds({}, {})
        for name, value in given.items():
            expected = self._expected(name)
            if expected is None:
                check.problems.append(self._unknown(name))
            elif type(value) is np.ndarray and _fits(value, expected):
                last = self._stages.get(expected.number)
                if last is not None:
                    np.copyto(last.owner, value)
                else:
                    last = TensorAt(value, address_of(value), expected.symbol.dtype, value.shape)
                    if expected.shape is None:
                        _check_dims(value.shape, expected, check)
                feeds.tensors[expected.number] = last
            else:
                _convert(value, expected, feeds, check)
        if len(feeds.tensors) + len(feeds.values) < len(given):
            check.problems += self._given_twice(given)
        if check.problems:
            raise RunError("\n".join(check.problems))
        return feeds

    def _given_twice(self, given: Iterable[str]) -> list[str]:
        """Return a sentence for each name of what another name has given already."""
        found, first = [], dict[int, str]()
        for name in given:
            expected = self._expected(name)
            if expected is None:
                continue  # told elsewhere; it may be no name at all
            other = first.setdefault(expected.number, name)
            if other != name:
                found.append(f"'{other}' and '{name}' are one tensor; give it under one name.")
        return found

    def computed(self, symbols: Iterable[int], makers: Mapping[int, str]) -> RunError:
        """Return the error for given symbols that the run would compute; `makers` says where."""
        lines = [
            f"'{self._program.symbols[index].name}' cannot be given: {makers[index]}, which is to "
            f"run, computes it."
            for index in symbols
        ]
        return RunError("\n".join(lines))

    def missing(self, symbols: Iterable[int], makers: Mapping[int, str]) -> RunError:
        """Return the error for symbols that nothing provides; `makers` says what computes them."""
        public = {expected.number: expected for expected in self._ports.values()}
        lines = []
        for index in symbols:
            symbol = self._program.symbols[index]
            expected = public.get(index)
            if expected is not None:
                cure = _left_by(self._program, symbol)
                lines.append(f"Input '{expected.name}' is missing: {expected} was expected{cure}.")
            else:
                maker = makers.get(index, "the program")
                lines.append(
                    f"'{symbol.name}' has not been computed: run {maker} first, or pass it by "
                    f"this name as {Expected.of('', index, symbol)}."
                )
        return RunError("\n".join(lines))

    def _expected(self, name: str) -> Expected | None:
        return self._ports.get(name) or self._symbol(name)

    def _symbol(self, name: str) -> Expected | None:
        """Return any symbol of the model: to run some sections, others' results may be given."""
        if self._others is None:
            weights, symbols = pef.SymbolKind.WEIGHT, self._program.symbols
            self._others = {
                symbols[index].name: Expected.of(symbols[index].name, index, symbols[index])
                for index in sorted(symbols_of_model(self._program, self._graph))
                if symbols[index].kind is not weights and index not in self._states
            }
        return self._others.get(name)

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, self._ports)
        known = listed(list(self._ports), _NAMES_SHOWN, ", ") or "none"
        others = {port.name for graph in self._program.graphs for port in graph.inputs}
        if name in others.union(
            symbol.name for symbol in self._program.symbols if symbol.kind is _INPUT
        ):
            graph = self._program.graphs[self._graph].name
            return f"'{name}' is no input of graph '{graph}', but of another. It has {known}."
        return f"There is no input '{name}'{hint}. The inputs are {known}."


def _left_by(program: pef.Program, symbol: pef.Symbol) -> str:
    """Return which graphs leave an input in a region that they share with it, once they ran."""
    if symbol.allocation is None or not program.allocations[symbol.allocation].shared:
        return ""
    makers = [
        f"'{graph.name}'"
        for graph in program.graphs
        if any(program.symbols[p.symbol].allocation == symbol.allocation for p in graph.outputs)
    ]
    return f"; give it, or first run {' or '.join(makers)}, which leaves it" if makers else ""


def symbols_of_model(program: pef.Program, graph: int) -> set[int]:
    """Return what the graphs of the model that `graph` is of read and write, and their inputs.

    A training step and its evaluation are graphs of one model: they may be given the same.
    """
    model = program.graphs[graph].model
    flat, found = states_of(program).packs, set[int]()
    for own in program.graphs:
        if own.model != model:
            continue
        found.update(port.symbol for port in own.inputs)
        for number in program.schedule[own.first_call : own.first_call + own.calls]:
            section = program.sections[number]
            found.update(section.inputs, section.outputs)
    return found.union(*(flat.get(index, ()) for index in found))


def convert_all(
    expected: Mapping[str, Expected], given: Mapping[str, object]
) -> tuple[Feeds, list[str]]:
    """Return `given` ready to be bound or copied, and what is wrong with it, in sentences."""
    check, feeds = _Check(), Feeds({}, {})
    for name, value in given.items():
        wanted = expected[name]
        if type(value) is np.ndarray and wanted.shape is not None and _fits(value, wanted):
            at = TensorAt(value, address_of(value), wanted.symbol.dtype, value.shape)
            feeds.tensors[wanted.number] = at
        else:
            _convert(value, wanted, feeds, check)
    return feeds, check.problems


def _stage(expected: Expected) -> TensorAt:
    """Return memory of its own for a small input."""
    array = np.empty(expected.shape or (), expected.dtype)
    return TensorAt(array, address_of(array), expected.symbol.dtype, array.shape)


def type_text(symbol: pef.Symbol) -> str:
    """Return a symbol's type as users write it: `float32`, or onnxruntime's spelling."""
    number = dtypes.parse(symbol.type)
    return symbol.type if number is None else dtypes.BY_NUMBER[number].name


def shape_text(shape: Iterable[int | str | None] | None) -> str:
    """Return a shape as text: `[1, 3, n, ?]`, or `` if not even the rank is known."""
    if shape is None:
        return ""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def _fits(value: Array, expected: Expected) -> bool:
    """Tell quickly whether `value` can be bound as it is."""
    return (
        value.dtype == expected.dtype
        and (value.shape == expected.shape or expected.shape is None)
        and (expected.symbol.shape is None or len(expected.symbol.shape) == value.ndim)
        and value.flags.c_contiguous
    )


def _convert(value: object, expected: Expected, feeds: Feeds, check: _Check) -> None:
    """Add `value`, which needs a closer look, to `feeds`, or its problems to `check`."""
    number = dtypes.parse(expected.symbol.type)
    if number is None:
        problem = _check_object(value, expected.symbol.type)
        if problem:
            check.problems.append(f"{expected.label} {problem}; {expected} was expected.")
        feeds.values[expected.number] = value
        return
    try:
        array = _as_array(value, number)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # the last is torch's
        check.problems.append(
            f"{expected.label} is no array of {expected}: {str(error).rstrip('.')}."
        )
        return
    came = dtypes.from_numpy(array.dtype)
    if not _same_type(array, came, number):
        check.problems.append(
            f"{expected.label} is {array.dtype}{shape_text(array.shape)}; {expected} was expected."
        )
        return
    if not _check_dims(array.shape, expected, check):
        return
    if is_bindable(expected.symbol.type):
        raw = to_bytes(array, number)
        feeds.tensors[expected.number] = TensorAt(raw, address_of(raw), number, array.shape)
    else:
        feeds.values[expected.number] = array


def _as_array(value: object, number: int) -> Array:
    """Return `value` as an array; numbers and lists that have no type of their own take ours.

    Those that ours cannot hold keep numpy's type for them: whole numbers would wrap around, and
    finite ones become infinite. Raises `ValueError` for a masked array with masked elements.
    """
    if isinstance(value, np.ma.MaskedArray) and value.mask.any():
        raise ValueError("some of its elements are masked; give what they are with 'filled'")
    target = dtypes.numpy_dtype(number)
    if number == dtypes.STRING:
        return np.asarray(value, dtype=object)
    if isinstance(value, (bool, int, float, list, tuple)):
        untyped = np.asarray(value)
        whole = untyped.dtype.kind in "iu" and target.kind in "iu"  # of which all are looked at
        if untyped.size and not (whole or np.can_cast(untyped.dtype, target, "same_kind")):
            return untyped
        with np.errstate(over="ignore"):
            typed = untyped.astype(target)
        return typed if _holds(typed, untyped) else untyped
    return np.asarray(value)


def _holds(typed: Array, untyped: Array) -> bool:
    """Tell whether `typed` has the numbers of `untyped`, but for digits of those with a point."""
    if typed.dtype.kind in "iub":
        return np.array_equal(typed, untyped)
    finite = np.isfinite(typed.astype(np.complex128 if typed.dtype.kind == "c" else np.float64))
    return np.array_equal(finite, np.isfinite(untyped))


def _same_type(array: Array, came: int | None, number: int) -> bool:
    """Tell whether `array` holds elements of type `number`, or their raw bits."""
    if number == dtypes.STRING:
        return all(isinstance(item, (str, bytes)) for item in array.reshape(-1))
    if array.dtype.newbyteorder("=") == dtypes.numpy_dtype(number).newbyteorder("="):
        return True
    kind = dtypes.BY_NUMBER[number]
    if kind.bits < 8:
        return array.dtype in (np.int8, np.uint8)
    return came is not None and kind.scalar != kind.storage and array.dtype == kind.storage


def _check_dims(shape: tuple[int, ...], expected: Expected, check: _Check) -> bool:
    """Check `shape` against the expected one and against the sizes that other inputs had."""
    wanted = expected.symbol.shape
    if wanted is None:
        return True
    fits = len(wanted) == len(shape) and all(
        not isinstance(want, int) or want == size for want, size in zip(wanted, shape, strict=True)
    )
    if not fits:
        check.problems.append(
            f"{expected.label} has shape {shape_text(shape)}; {expected} was expected."
        )
        return False
    for want, size in zip(wanted, shape, strict=True):
        if not isinstance(want, str):
            continue
        known, source = check.sizes.setdefault(want, (size, expected.name))
        if known != size:
            check.problems.append(
                f"Dimension '{want}' is {known} in input '{source}' and {size} in "
                f"'{expected.name}'; it must be the same."
            )
    return True


def _check_object(value: object, spelling: str) -> str:
    """Return what is wrong with `value` as a sequence, optional or map, or nothing."""
    kind, inner = dtypes.container(spelling)
    if kind == "optional":
        return "" if value is None else _check_object(value, inner)
    if kind == "seq":
        if not isinstance(value, (list, tuple)):
            return f"is a {type(value).__name__}"
        return next(filter(None, (_check_object(item, inner) for item in value)), "")
    if kind == "map":
        return _check_map(value, inner)
    number = dtypes.parse(spelling)
    if number is None:
        return ""
    array = np.asarray(value)
    if number == dtypes.STRING or _same_type(array, dtypes.from_numpy(array.dtype), number):
        return ""
    return f"holds {array.dtype}{shape_text(array.shape)}"


def _check_map(value: object, arguments: str) -> str:
    """Return what is wrong with `value` as a map of `arguments`, `int64,tensor(float)`, or nothing.

    onnxruntime would look at the first key only.
    """
    keys, _, values = arguments.partition(",")
    if values != "tensor(float)":
        return "cannot be given: from Python, onnxruntime takes only maps to tensor(float)"
    if not isinstance(value, dict):
        return f"is a {type(value).__name__}"
    if not value:
        return "is an empty map, which onnxruntime does not take"
    key_type = str if keys == "string" else (int, np.integer)
    for key, item in value.items():
        if not isinstance(key, key_type):
            return f"has the key {key!r}"
        if not isinstance(item, (int, float, np.number)):
            return f"maps {key!r} to a {type(item).__name__}"
    return ""
