"""The profile of a run: time by section, beside what Python does meanwhile.

It is on only where the environment variable ENABLE_RUNTIME_PERF is SUMMARY, for a row for each
section, or DETAILED, for one for each call too. Sections are then run one by one, each in a session
of its own, which may take longer than usual.
"""

from __future__ import annotations

import cProfile
import os
import pstats
from collections.abc import Iterable
from io import StringIO
from time import perf_counter
from typing import TYPE_CHECKING

from pef.files import write_text

if TYPE_CHECKING:
    from sambarun import Span

VARIABLE = "ENABLE_RUNTIME_PERF"
_LEVELS = ("SUMMARY", "DETAILED")
_FUNCTIONS = 50
_NS_PER_MS = 1e6


class RuntimeProfile:
    """One profile, from `start` to `end`."""

    def __init__(self) -> None:
        self._level = ""
        self._python: cProfile.Profile | None = None
        self._spans: list[Span] = []
        self._began: float | None = None

    @property
    def enabled(self) -> bool:
        """Whether sections are to be profiled now; the session tells `add` what it measured."""
        return self._python is not None

    def start(self, timer_enabled: bool = True) -> None:
        """Begin, if the environment asks for it; with `timer_enabled` the time to `end` is printed.

        Raises ValueError for a level that does not exist.
        """
        level = os.environ.get(VARIABLE, "")
        if level and level not in _LEVELS:
            raise ValueError(f"{VARIABLE} is {level!r}, expected SUMMARY or DETAILED")
        self._stop()
        if not level:
            return
        self._level, self._spans = level, []
        self._began = perf_counter() if timer_enabled else None
        self._python = cProfile.Profile()
        self._python.enable()

    def add(self, spans: Iterable[Span]) -> None:
        """Take note of the calls of sections in one run."""
        self._spans += spans

    def end(self, log_file: str | os.PathLike[str] = "cprofile_tmp.log") -> None:
        """Stop, and write tables of sections and of Python's functions, whole or not at all.

        Does nothing if no profile was begun. Raises `OSError` if the file cannot be written.
        """
        python = self._stop()
        if python is None:
            return
        if self._began is not None:
            print(f"Profiled for {perf_counter() - self._began:.6f} s")

        text = StringIO()
        pstats.Stats(python, stream=text).sort_stats("cumulative").print_stats(_FUNCTIONS)
        calls = _calls(self._spans) if self._level == "DETAILED" else []
        write_text(log_file, "\n".join([*_sections(self._spans), "", *calls, text.getvalue()]))

    def _stop(self) -> cProfile.Profile | None:
        python, self._python = self._python, None
        if python is not None:
            python.disable()
        return python


def _sections(spans: Iterable[Span]) -> list[str]:
    """Return a table with a row for each section."""
    times: dict[tuple[int, str, str], list[float]] = {}
    for span in spans:
        key = span.section, span.type, span.name
        times.setdefault(key, []).append(span.duration / _NS_PER_MS)
    head = f"{'section':>8} {'type':<9} {'calls':>8} {'total ms':>12} {'mean':>10} {'min':>10}"
    return [
        f"{head} {'max':>10}  name",
        *(
            f"{section:>8} {kind:<9} {len(found):>8} {sum(found):>12.4f} "
            f"{sum(found) / len(found):>10.4f} {min(found):>10.4f} {max(found):>10.4f}  {name}"
            for (section, kind, name), found in sorted(times.items())
        ),
    ]


def _calls(spans: Iterable[Span]) -> list[str]:
    """Return a table with a row for each call, in order."""
    return [
        f"{'call':>8} {'section':>8} {'start ms':>12} {'took ms':>10}  name",
        *(
            f"{span.call:>8} {span.section:>8} {span.start / _NS_PER_MS:>12.4f} "
            f"{span.duration / _NS_PER_MS:>10.4f}  {span.name}"
            for span in spans
        ),
        "",
    ]
