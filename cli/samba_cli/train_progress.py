"""How a training run is going: a bar with the loss on a terminal, a few lines at its end."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pef.text import human_time, name_text, plural
from sambarun.train_loop import Run, StepResult
from sambarun.training.data import Batches

from .shell import is_terminal

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
        rate = f", {_rate(self.rate)} steps/s" if self.rate else ""
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
