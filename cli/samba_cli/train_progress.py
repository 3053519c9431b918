"""How a training run is going: a bar with the loss on a terminal, a few lines at its end.

With `--log-csv` also a file: a row for each step, behind those of the runs that it continues.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypedDict

from pef.files import replacing
from pef.foreign import reading, why
from pef.text import human_time, name_text, plural
from sambarun import Executable
from sambarun.train_loop import Run, StepResult
from sambarun.training.data import Batches

from .shell import Wrong, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress

_MOST_AVERAGED = 100
_SHOWN = 2
_WHOLE = 100
_INTERVAL = 0.1


class Tally:
    """What is known of a run so far: steps, losses, time.

    The rate leaves out the first step, which also prepares all others.
    """

    def __init__(self, run: Run, batches: Batches) -> None:
        self.run = run
        self.steps = 0
        self.last: StepResult | None = None
        self._batches = batches
        self._first: StepResult | None = None
        self._recent: deque[StepResult] = deque(maxlen=min(max(1, batches.count), _MOST_AVERAGED))
        self._begin = time.perf_counter()
        self._times = (0.0, 0.0)

    def add(self, step: StepResult) -> None:
        """Count a step."""
        now = time.perf_counter()
        if self._first is None:
            self._first, self._times = step, (now, now)
        self._times = (self._times[0], now)
        self._recent.append(step)
        self.steps += 1
        self.last = step

    @property
    def rate(self) -> float:
        """Steps per second; 0 before there are two."""
        first, last = self._times
        return (self.steps - 1) / (last - first) if last > first else 0.0

    def lines(self, file: str) -> list[str]:
        """Return how the run went."""
        if self._first is None or self.last is None:
            return [f"{file}: no steps"]
        taken = human_time((self._times[1] - self._begin) * 1e6)
        rate = f", {_rate(self.rate)} steps/s after the first" if self.rate else ""
        count = self._batches.count
        epochs = self.steps * self.run.accumulate / count
        of = (
            f"{epochs:,.4g} epoch{'' if epochs == 1 else 's'} "
            f"of {count:,} batch{'' if count == 1 else 'es'}"
        )
        lines = [f"{file}: {plural(self.steps, 'step')} ({of}) in {taken}{rate}"]
        recent = f"mean of the last {plural(len(self._recent), 'step')}"
        for name, value in self._first.losses.items():
            mean = sum(step.losses[name] for step in self._recent) / len(self._recent)
            lines.append(f"{name_text(name)}: {value:.4g} -> {mean:.4g} ({recent})")
        return lines

    def state(self) -> str:
        """Return epoch, losses and rate as they stand, at nearly the same width all the time."""
        if self.last is None:
            return ""
        losses = list(self.last.losses.items())[:_SHOWN]
        shown = [f"{name_text(name)} {value:<8.4g}" for name, value in losses]
        rate = [f"{_rate(self.rate):>7}/s"] if self.rate else []
        return "  ".join([f"epoch {self.last.epoch + 1:<3}", *shown, *rate])


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= _WHOLE else f"{rate:.3g}"


Show = Callable[[int, Callable[[], str]], None]


@contextmanager
def bar(total: int) -> Iterator[Show]:
    """Yield what to call with what is done of `total`, and with what says how it stands.

    It keeps a bar on a terminal up to date, a few times a second, and does nothing elsewhere.
    """
    if not is_terminal(sys.stderr):
        yield lambda done, state: None
        return
    with _columns() as shown:
        task = shown.add_task("", total=total, state="")
        due = 0.0

        def show(done: int, state: Callable[[], str]) -> None:
            nonlocal due
            now = time.perf_counter()
            if now >= due or done == total:
                due = now + _INTERVAL
                shown.update(task, completed=done, state=state())

        yield show


def _columns() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.fields[state]}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )


_FIRST = ("step", "epoch")
_SECONDS = 1.0
"""Rows reach the file this often, for those who watch it grow."""


class LogError(Wrong):
    """The log cannot be written, on a full disk for one."""


class _Text(TypedDict):
    encoding: str
    newline: str


_TEXT = _Text(encoding="utf-8", newline="")


class LossLog:
    """A CSV file with step, epoch, each loss, and what GRADNORM sections measure.

    Hyperparameters that are not as compiled have columns too. Steps and epochs count from 1. A run
    that continues after step `after` keeps the rows up to there of a file that is already at
    `path`, whatever hyperparameters either run changes; any other run begins the file anew.
    """

    def __init__(self, path: str, executable: Executable, after: int) -> None:
        self._path = Path(path)
        self._executable = executable
        self._after = after
        self._file: TextIO | None = None
        self._values = ""  # of the hyperparameters, which stay as they are in a run
        self._flushed = 0.0
        self.rows = 0

    def add(self, step: StepResult) -> None:
        """Write the row of a step.

        Raises `Wrong` for a file with other columns, and `LogError`.
        """
        with self._writing():
            if self._file is None:
                self._file = self._open(step)
            numbers = [*step.losses.values(), *step.measures.values()]
            losses = ",".join(f"{value:.9g}" for value in numbers)
            self._file.write(f"{step.cursor.step},{step.epoch + 1},{losses}{self._values}\n")
            self.rows += 1
            now = time.monotonic()
            if now - self._flushed > _SECONDS:
                self._flushed = now
                self._file.flush()

    def flush(self) -> None:
        """Put all rows on the disk: a checkpoint that is there must find the rows before it.

        Raises `LogError`.
        """
        if self._file is not None:
            with self._writing():
                self._file.flush()
                os.fsync(self._file.fileno())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Make a `LogError` of errors of the system; the file is closed then, as far as it goes."""
        try:
            yield
        except OSError as error:
            file, self._file = self._file, None
            if file is not None:
                with suppress(OSError):  # it tries once more to write what it holds
                    file.close()
            raise LogError(f"{self._path} cannot be written: {error.strerror}.") from error

    def _open(self, step: StepResult) -> TextIO:
        """Begin the file with its header and the rows of the runs before this one."""
        measured = [*_FIRST, *step.losses, *step.measures]
        before = self._before(measured) if self._after and self._path.exists() else []
        defaults = {argin.name: argin.default for argin in self._executable.program.argins}
        now = self._executable.argins
        changed = [
            name
            for name, default in defaults.items()
            if now[name] != default or any(name in row for row in before)
        ]
        self._values = "".join(f",{now[name]:.9g}" for name in changed)
        # As a whole: the rows of earlier runs stay if this one is killed while it writes them anew.
        with replacing(self._path) as temporary, temporary.open("w", **_TEXT) as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow([*measured, *changed])
            for row in before:
                # What had no column yet was as compiled.
                others = (row.get(name, f"{defaults[name]:.9g}") for name in changed)
                rows.writerow([*(row[name] for name in measured), *others])
        return self._path.open("a", **_TEXT)

    def _before(self, measured: list[str]) -> list[dict[str, str]]:
        """Return the rows that runs before this one have written, up to where this one begins."""
        cure = "this run goes on in it, so it must be the log of the run before; give another file"
        with (
            reading(lambda error: Wrong(f"{self._path} is no CSV file ({why(error)}); {cure}.")),
            self._path.open(encoding="utf-8", newline="") as file,
        ):
            header, *rows = [*csv.reader(file)] or [[]]
        known = {*measured, *self._executable.argins}
        if header[: len(measured)] != measured or not known.issuperset(header):
            raise Wrong(
                f"{self._path} has the columns {','.join(header)}, and this run makes "
                f"{','.join(measured)}; give another file."
            )
        whole = [row for row in rows if len(row) == len(header) and row[0].isdecimal()]
        return [dict(zip(header, row, strict=True)) for row in whole if int(row[0]) <= self._after]

    def close(self) -> None:
        """Write what is left."""
        if self._file is not None:
            self.flush()
            self._file.close()
