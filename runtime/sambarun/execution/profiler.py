"""Profiles: how long each section took, as a table and as a Chrome trace."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from sambarun.arrays import Array

_NS_PER_US = 1000


class Span(NamedTuple):
    """One call of a section; `start`, from the beginning of the run, and `duration` in ns.

    `provider` is the execution provider that ran it, by onnxruntime's name; empty for what the host
    does by itself.
    """

    call: int
    section: int
    name: str
    type: str
    start: int
    duration: int
    provider: str = ""


class Profile(NamedTuple):
    """A measured run: its results by name, and a span per call.

    Profiled sections are never linked: an unprofiled run of several sections may be faster than
    the sum of the spans.
    """

    outputs: dict[str, Array]
    spans: tuple[Span, ...]

    def trace(self) -> dict[str, object]:
        """Return the profile in the Chrome trace format, times in microseconds."""
        return {
            "displayTimeUnit": "ms",
            "otherData": {"linked": "no: sections were run one by one"},
            "traceEvents": [
                {
                    "name": span.name,
                    "cat": span.type,
                    "ph": "X",
                    "ts": span.start / _NS_PER_US,
                    "dur": span.duration / _NS_PER_US,
                    "pid": 0,
                    "tid": 0,
                    "args": {
                        "call": span.call,
                        "section": span.section,
                        "type": span.type,
                        "provider": span.provider,
                    },
                }
                for span in self.spans
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace to `path`, whole or not at all; raises `OSError` if it cannot."""
        # Imported here because few runs are profiled, and all of them wait for imports.
        import json

        from pef.files import write_text

        write_text(path, json.dumps(self.trace(), indent=1) + "\n")


class Stopwatch:
    """Laps in ns: when each began, counted from the start, and how long it took."""

    __slots__ = ("_began", "_first", "laps")

    def __init__(self) -> None:
        self.laps: list[tuple[int, int]] = []
        self._first = self._began = time.perf_counter_ns()

    def start(self) -> None:
        """Begin a lap."""
        self._began = time.perf_counter_ns()

    def stop(self) -> None:
        """End the lap."""
        now = time.perf_counter_ns()
        self.laps.append((self._began - self._first, now - self._began))
