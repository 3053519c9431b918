"""A training run: step after step over batches, watched for NaN and infinity, and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

import pef
from pef.wording import listed

from .arrays import Array
from .device.host_kernels import seed_names
from .device.hyperparams import matching
from .errors import RunError
from .executor import Executable
from .training.data import Batch, Batches, Cursor

_FLOATS = "fV"
"""The kinds of numpy's types that may hold NaN: bfloat16 is a void to it."""


class NotFiniteError(RunError):
    """Training has left the numbers: a loss, or the state it made, holds NaN or infinity.

    `data` are the names of inputs of that step that do so, too.
    """

    def __init__(self, message: str, data: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.data = tuple(data)


class StepError(RunError):
    """A step behind the first one has failed, which the message names by its number."""


@dataclass(frozen=True, slots=True)
class Run:
    """How to train: `steps` steps from `start`, each over `accumulate` batches.

    `hyperparams` are given with the first step and kept by the executable. A seed among them
    begins the masks anew, so a run that goes on behind the beginning leaves out one that is set
    already. `model` is the one to train, where there are several.
    """

    steps: int
    start: Cursor = field(default_factory=Cursor)
    accumulate: int = 1
    hyperparams: Mapping[str, float] = field(default_factory=dict)
    model: str = ""


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step that was made: `losses` by name, the epoch it began in, the cursor after it.

    `measures` are the scalars that GRADNORM sections give: `grad_norm`, the norm of the gradients
    before they were clipped, and what each loss counts where losses are balanced.
    """

    losses: dict[str, float]
    epoch: int
    cursor: Cursor
    measures: dict[str, float] = field(default_factory=dict)


def train(executable: Executable, batches: Batches, run: Run) -> Iterator[StepResult]:
    """Make the steps of `run`, one for each item taken from the iterator.

    Raises `NotFiniteError`, which names the step and the loss, as soon as a loss is NaN or
    infinite; the state of the executable is of no use then. Raises `RunError` as
    `Executable.step` does, behind the first step a `StepError`.
    """
    cursor, hyperparams = run.start, _given_first(executable, run) or None
    measured = _measured(executable.program, run.model)
    for _ in range(run.steps):
        taken, after = batches.take(cursor, run.accumulate)
        given = taken if run.accumulate > 1 else taken[0]
        try:
            losses = executable.step(given, hyperparams, graph=run.model or None)
        except RunError as error:
            if cursor is run.start:
                raise
            raise StepError(f"Step {cursor.step + 1}: {error}") from error
        hyperparams = None
        step = StepResult(
            {name: _number(value) for name, value in losses.items()}, cursor.epoch, after
        )
        if measured:
            values = executable.read(*measured.values())
            step.measures.update((name, _number(values[at])) for name, at in measured.items())
        _require_finite(step, taken)
        yield step
        cursor = after


def _given_first(executable: Executable, run: Run) -> dict[str, float]:
    """Return what is given with the first step: all, but the seed that a run goes on with."""
    given = dict(run.hyperparams)
    if not (given and run.start.step):
        return given
    now, seeds = executable.argins, seed_names(executable.program)
    sets = matching(given, now)
    kept = {argin for argin, name in sets.items() if argin in seeds and now[argin] == given[name]}
    changed = {name for argin, name in sets.items() if argin not in kept}
    return {name: value for name, value in given.items() if name in changed}


def _require_finite(step: StepResult, batches: Sequence[Batch]) -> None:
    for name, value in (*step.losses.items(), *step.measures.items()):
        if not isfinite(value):
            data = _not_finite(batches)
            also = f", and so is some of {listed(data, separator=', ')}" if data else ""
            raise NotFiniteError(f"Step {step.cursor.step}: '{name}' is {value}{also}.", data)


def _not_finite(batches: Sequence[Batch]) -> list[str]:
    """Return the names of the arrays that hold NaN or infinity."""
    return [
        name
        for name in batches[0]
        if batches[0][name].dtype.kind in _FLOATS
        and not all(np.isfinite(batch[name]).all() for batch in batches)
    ]


def _measured(program: pef.Program, model: str) -> dict[str, str]:
    """Return the names of the scalar outputs of GRADNORM sections, and those of their symbols."""
    made = {
        index
        for section in program.sections
        if section.type is pef.SectionType.GRADNORM
        for index in section.outputs
    }
    return {
        port.name: program.symbols[port.symbol].name
        for graph in program.graphs
        if (graph.model, graph.role) == (model, pef.GraphRole.TRAIN)
        for port in graph.outputs
        if port.symbol in made and not program.symbols[port.symbol].shape
    }


def _number(value: Array) -> float:
    return float(value.reshape(-1)[0])


class Checkpoints:
    """The file that keeps the state of a run; what holds NaN is never written over what does not.

    `every` counts steps; without it the state is kept whenever an epoch has ended. `kept` is the
    cursor of what the file holds, None as long as this run has written nothing.
    """

    def __init__(
        self, executable: Executable, path: str | os.PathLike[str], every: int | None = None
    ) -> None:
        self._executable = executable
        self._path = path
        self._every = every
        kinds = {symbol.name: symbol.kind for symbol in executable.program.symbols}
        self._buffers = {name for name, kind in kinds.items() if kind is pef.SymbolKind.BUFFER}
        self.kept: Cursor | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a checkpoint already, of this run or an earlier one."""
        return os.path.exists(self._path)

    def after(self, step: StepResult, first: Callable[[], None] | None = None) -> None:
        """Keep the state if it is time, and do what has to be done `first` then."""
        if self._every is None:
            due = step.cursor.epoch != step.epoch
        else:
            due = step.cursor.step % self._every == 0
        if due and first is not None:
            first()
        if due:
            self.keep(step.cursor)

    def keep(self, cursor: Cursor) -> None:
        """Write the state, unless the file holds it already.

        Raises `NotFiniteError` for a state that is of no use; the file stays as it was.
        """
        if cursor == self.kept:
            return
        bad = self._not_finite()
        if bad is not None:
            raise NotFiniteError(
                f"After step {cursor.step}, '{bad}' holds NaN or infinite numbers."
            )
        self._executable.save(self._path, cursor)
        self.kept = cursor

    def _not_finite(self) -> str | None:
        """Return the name of what holds NaN or infinity; buffers may hold infinity (masks do)."""
        for name, array in self._executable.state().items():
            if array.dtype.kind not in _FLOATS:
                continue
            wrong = np.isnan(array) if name in self._buffers else ~np.isfinite(array)
            if wrong.any():
                return name
        return None
