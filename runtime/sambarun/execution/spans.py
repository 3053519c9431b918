"""What is measured of a run: sections and operators, and the watch that times them."""

from __future__ import annotations

import time
from typing import NamedTuple


class Span(NamedTuple):
    """One call of a section; `start`, the time of all calls before it, and `duration` in ns.

    `kind` is what else the host did for the section (a mask, a wait), empty for the section itself.
    `provider` is the execution provider that ran it, by onnxruntime's name; empty for what the host
    does by itself.
    """

    call: int
    section: int
    name: str
    type: str
    start: int
    duration: int
    kind: str = ""
    provider: str = ""


class OperatorSpan(NamedTuple):
    """One operator within a call of a section; `start` and `duration` as in `Span`.

    `node` is its position in the section's portable program, None for what onnxruntime has made.
    """

    call: int
    section: int
    name: str
    op_type: str
    node: int | None
    start: int
    duration: int


class Stopwatch:
    """Laps in ns: when each began, with nothing between them, and how long it took."""

    __slots__ = ("_began", "_total", "laps")

    def __init__(self) -> None:
        self.laps: list[tuple[int, int]] = []
        self._began = self._total = 0

    def start(self) -> None:
        """Begin a lap."""
        self._began = time.perf_counter_ns()

    def stop(self) -> None:
        """End the lap."""
        took = time.perf_counter_ns() - self._began
        self.laps.append((self._total, took))
        self._total += took
