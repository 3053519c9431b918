"""Training data: one array per input, cut into batches, and where a run stands in them.

>>> batches = Batches(executable.program, {"x": x, "y": y})
>>> cursor = Cursor(shuffle=0)
>>> for _ in range(100):
...     (batch,), cursor = batches.take(cursor)
...     losses = executable.step(batch)

Arrays are brought into the element type that a program takes, where that keeps their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

import pef
from pef import dtypes
from pef.arguments import BY_NAME, COUNT, NAME, WHOLE, Kind, instance
from pef.states import TRAIN_GRAPH
from pef.text import plural
from pef.wording import did_you_mean, listed
from sambarun.arrays import Array
from sambarun.errors import RunError, require

from .classes import odd_labels

_NAMES_SHOWN = 10

Batch = dict[str, Array]

_PROGRAM = Kind("a pef.Program", lambda v: hasattr(v, "graphs") and hasattr(v, "symbols"))
_SOME = WHOLE.at_least(1)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a training run stands: `step` steps are done, `batch` of `epoch` comes next.

    `shuffle` is the seed of the order of rows, which is another one in each epoch; None keeps them
    in the order of the data.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    shuffle: int | None = None

    def __post_init__(self) -> None:
        numbers = (self.step, self.epoch, self.batch)
        if all(type(number) is int and number >= 0 for number in numbers) and self.shuffle is None:
            return  # as in most steps
        require(
            step=(self.step, COUNT),
            epoch=(self.epoch, COUNT),
            batch=(self.batch, COUNT),
            shuffle=(self.shuffle, COUNT.or_none()),
        )


class Batches:
    """Arrays cut into batches of the size that a program was compiled for.

    `arrays` holds one array for each input of the program's graph `graph` (`train` or `eval` of the
    model called `model` where several train, or any by its name), by name; others beside them are
    left alone. An array holds N rows of what the input takes `size` of: [N, ...] for an input
    [size, ...]. An array of just the input's shape is one batch; it is given with each batch of
    the others where these have another number. So is a scalar. Elements are converted where nothing
    is lost but digits of floating-point numbers; `notes` says so, and what is odd about labels.

    `rows` is N, `size` how many a step takes, `count` how many full batches an epoch has; the rows
    that are left over are not used in it. Raises `RunError` with a line for each thing that does
    not fit; too few rows for a single batch are allowed with `partial`.
    """

    def __init__(
        self,
        program: pef.Program,
        arrays: Mapping[str, Array],
        graph: str = TRAIN_GRAPH,
        *,
        model: str = "",
        partial: bool = False,
    ) -> None:
        require(
            program=(program, _PROGRAM),
            arrays=(arrays, BY_NAME),
            graph=(graph, NAME),
            model=(model, NAME),
        )
        self.notes: list[str] = []
        problems: list[str] = []
        self._arrays: Batch = {}
        expected = _inputs(program, model, graph)
        for name, symbol in expected.items():
            if name in arrays:
                self._add(name, np.asarray(arrays[name]), symbol, problems)
            elif symbol.data is None:
                problems.append(_missing(name, symbol, arrays))
        shapes = {name: _sizes(expected[name]) for name in self._arrays}
        self._cut, self.rows, self.size = _rows(self._arrays, shapes, problems)
        self.count = self.rows // self.size
        if not self.count and not partial and not problems:
            problems.append(
                f"{plural(self.rows, 'row')}, and a step takes {self.size}: give more, or compile "
                f"for a smaller batch."
            )
        if problems:
            raise RunError("\n".join(problems))
        odd = odd_labels(program, self._arrays, model)
        if odd is not None:
            self.notes.append(f"{odd}.")
        self._order: tuple[tuple[int | None, int], Array | None] = ((None, 0), None)

    def take(self, cursor: Cursor, batches: int = 1) -> tuple[list[Batch], Cursor]:
        """Return the `batches` that the step at `cursor` reads, and the cursor after that step.

        Arrays of rows in their own order are views of the data.
        """
        require(
            cursor=(cursor, instance(Cursor, "a Cursor")),
            batches=(batches, _SOME),
        )
        epoch, number = cursor.epoch, cursor.batch
        taken = []
        for _ in range(batches):
            if number >= self.count:
                epoch, number = epoch + 1, 0
            taken.append(self._batch(self._rows_of(cursor.shuffle, epoch), number))
            number += 1
        if number >= self.count:
            epoch, number = epoch + 1, 0
        return taken, replace(cursor, step=cursor.step + 1, epoch=epoch, batch=number)

    def in_order(self) -> Iterator[tuple[Batch, int]]:
        """Yield all rows once, with how many rows of each batch count.

        That is fewer than `size` in the last batch if rows are left over; it is filled up with
        repetitions of the last row.
        """
        for number in range(self.count):
            yield self._batch(None, number), self.size
        left = self.rows - self.count * self.size
        if left:
            order = np.minimum(
                np.arange(self.rows - left, self.rows - left + self.size), self.rows - 1
            )
            yield self._batch(order, 0), left

    def _add(self, name: str, array: Array, symbol: pef.Symbol, problems: list[str]) -> None:
        try:
            self._arrays[name] = converted(array, symbol.dtype)
        except ValueError as error:
            problems.append(f"Array '{name}' is {error}.")
            return
        target = self._arrays[name].dtype
        if target != array.dtype and array.dtype.kind != "V":
            self.notes.append(f"{name}: {array.dtype} is converted to {target}.")

    def _rows_of(self, shuffle: int | None, epoch: int) -> Array | None:
        """Return the order of the rows in an epoch, None for their own."""
        if shuffle is None:
            return None
        if self._order[0] != (shuffle, epoch) or self._order[1] is None:
            order = np.random.default_rng((shuffle, epoch)).permutation(self.rows)
            self._order = ((shuffle, epoch), order)
        return self._order[1]

    def _batch(self, order: Array | None, number: int) -> Batch:
        rows = slice(number * self.size, (number + 1) * self.size)
        chosen = rows if order is None else order[rows]
        return {
            name: array[chosen] if name in self._cut else array
            for name, array in self._arrays.items()
        }


def _inputs(program: pef.Program, model: str, graph: str) -> dict[str, pef.Symbol]:
    """Return the inputs, by name, of a graph that is called so or has that role in `model`."""
    for candidate in program.graphs:
        named = candidate.name == graph and model in ("", candidate.model)
        if named or (candidate.model, candidate.role.name.lower()) == (model, graph):
            return {port.name: program.symbols[port.symbol] for port in candidate.inputs}
    known = listed([repr(candidate.name) for candidate in program.graphs], _NAMES_SHOWN, ", ")
    of_model = f" of a model '{model}'" if model else ""
    raise RunError(f"The program has no graph '{graph}'{of_model}, only {known}.")


def _sizes(symbol: pef.Symbol) -> tuple[int, ...]:
    """Return the shape of an input of training, where every size is known."""
    return tuple(size for size in symbol.shape or () if isinstance(size, int))


def _missing(name: str, symbol: pef.Symbol, arrays: Mapping[str, Array]) -> str:
    hint = did_you_mean(name, arrays)
    held = listed(list(arrays), _NAMES_SHOWN, ", ") or "nothing"
    return f"Array '{name}' is missing{hint}: {_wanted(symbol)} was expected. The data hold {held}."


def _wanted(symbol: pef.Symbol) -> str:
    """Return what is expected of an array: `float32[N, 3, 8, 8]`."""
    sizes = _sizes(symbol)
    rows = ", ".join(["N", *map(str, sizes[1:])]) if sizes else ""
    return f"{dtypes.BY_NUMBER[symbol.dtype].name}[{rows}]"


def _rows(
    arrays: Batch, shapes: Mapping[str, tuple[int, ...]], problems: list[str]
) -> tuple[frozenset[str], int, int]:
    """Return the names of the arrays to cut, how many rows these have and how many a step takes."""
    cut = {}
    for name, array in arrays.items():
        shape = shapes[name]
        if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
            wanted = ", ".join(["N", *map(str, shape[1:])]) if shape else ""
            problems.append(
                f"Array '{name}' has shape [{', '.join(map(str, array.shape))}]; "
                f"[{wanted}] was expected."
            )
        elif shape:
            cut[name] = (array.shape[0], shape[0])
    longer = {size for rows, size in cut.values() if rows != size}
    if not longer:
        return frozenset(), *next(iter(cut.values()), (1, 1))
    # What is one whole batch of another size than the others' is given with each of theirs.
    cut = {name: both for name, both in cut.items() if both[0] != both[1] or both[1] in longer}
    if len(set(cut.values())) > 1:
        counts = [f"'{name}' {rows} ({size} a step)" for name, (rows, size) in cut.items()]
        problems.append(
            f"The arrays differ in their number of rows: {listed(counts, _NAMES_SHOWN, ', ')}."
        )
    return frozenset(cut), *next(iter(cut.values()))


_LADDER = "biuf"


def converted(array: Array, number: int) -> Array:
    """Return `array` with element type `number`, contiguous.

    Floating-point numbers may lose digits but stay finite; integers and booleans become integers
    or floating-point numbers exactly. Raw elements, as numpy stores the types that it lacks, are
    taken at their word. Raises `ValueError` with what the array is and what was expected.
    """
    target = dtypes.numpy_dtype(number)
    if array.dtype == target:
        return np.ascontiguousarray(array).reshape(array.shape)
    kind = dtypes.BY_NUMBER[number]
    if array.dtype.kind == "V" and array.dtype.itemsize == target.itemsize:
        return np.ascontiguousarray(array).reshape(array.shape).view(target)
    if array.dtype.kind not in _LADDER or target.kind not in _LADDER[1:]:
        raise ValueError(f"{array.dtype}; {kind.name} was expected")
    if array.dtype.kind == "f" and target.kind != "f":
        raise ValueError(f"{array.dtype}; {kind.name} was expected")
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(target)
        if array.dtype.kind == "f":
            fits = np.isfinite(result) == np.isfinite(array)
        else:
            fits = (result.astype(array.dtype) == array) & ((result < 0) == (array < 0))
    if not fits.all():
        worst = array.reshape(-1)[int(np.argmin(fits.reshape(-1)))]
        raise ValueError(f"{array.dtype} and holds {worst}, which is no {kind.name}")
    return result
