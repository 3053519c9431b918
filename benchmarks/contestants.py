"""Engines in processes of their own, timed in turns.

A contestant is a process that loads one model and waits; asked for n runs it answers with n times
in seconds. Only one works at a time, so that none disturbs the other, and taking turns spreads
whatever else the machine does over all of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

THREADS = 2
_ROUNDS = 15
REFUSED = "refused"
"""The cell of an engine that does not run the network."""
_ROUND_SECONDS = 0.15
_PAUSE = 0.03  # seconds for the pools of the last contestant to fall asleep


class Contestant:
    """A worker process: `python -m benchmarks.worker ENGINE MODEL INPUTS THREADS`."""

    def __init__(self, engine: str, model: Path, inputs: Path, threads: int = THREADS) -> None:
        arguments = [engine, str(model), str(inputs), str(threads)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def times(self, count: int) -> list[float]:
        """Seconds of `count` runs, one by one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # A pipe whose reader is gone says no more than an answer that does not come.
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{count}\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a worker ended early: {self._process.args!r}")
        times: list[float] = json.loads(answer)
        return times


def runs(engine: str, model: Path, inputs: Path) -> bool:
    """Whether `engine` runs the model at all; what it says otherwise is on standard error."""
    with Contestant(engine, model, inputs) as contestant:
        try:
            contestant.times(1)
        except RuntimeError:
            return False
    return True


def race(
    engines: Mapping[str, tuple[str, Path]], inputs: Path, rounds: int = _ROUNDS
) -> dict[str, list[float]]:
    """Median seconds of each contestant in each round.

    `engines` maps a name to an engine of the worker and the file it loads. In each round every
    contestant runs for about a seventh of a second, at least three times.
    """
    medians: dict[str, list[float]] = {name: [] for name in engines}
    with ExitStack() as stack:
        contestants = {
            name: stack.enter_context(Contestant(engine, model, inputs))
            for name, (engine, model) in engines.items()
        }
        counts = {name: _count(contestant) for name, contestant in contestants.items()}
        for _ in range(rounds):
            for name, contestant in contestants.items():
                time.sleep(_PAUSE)
                medians[name].append(statistics.median(contestant.times(counts[name])))
    return medians


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over rounds of the ratio of two contestants."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _count(contestant: Contestant) -> int:
    """How many runs fill a round; warms up on the way."""
    typical = statistics.median(contestant.times(5))
    return max(3, int(_ROUND_SECONDS / typical))
