"""How long an application's own steps and those of the session take on the host.

The session measures, while its profiler is on:

    SAMBA_SESSION_RUN_[FWD,BCKWD]   `session.run`, with the section types that were asked for
    SAMBA_SET_PEF                   reading a PEF
    SAMBA_INIT_RUNTIME              reading the runtime's code, and making sections ready to run
    PyRT_RUN                        running them
    PyRT_SET_TENSORS                copying tensors to the device
    PyRT_SET_TENSORS_BROADCAST      sending them from the first process to the others
    PyRT_GET_TENSORS                copying tensors from the device
    PyRT_GET_TENSORS_GATHER         collecting them from all processes
    PyRT_SET_PINNED_INPUT_TENSORS   taking inputs while pinned memory is asked for; none is copied
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from pef.files import write_text
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import PATH, instance

SET_PEF = "SAMBA_SET_PEF"
INIT_RUNTIME = "SAMBA_INIT_RUNTIME"
RUN = "PyRT_RUN"
SET_TENSORS = "PyRT_SET_TENSORS"
SET_TENSORS_BROADCAST = "PyRT_SET_TENSORS_BROADCAST"
GET_TENSORS = "PyRT_GET_TENSORS"
GET_TENSORS_GATHER = "PyRT_GET_TENSORS_GATHER"
SET_PINNED = "PyRT_SET_PINNED_INPUT_TENSORS"
_SESSION_RUN = "SAMBA_SESSION_RUN"


class Event(NamedTuple):
    """An event that has begun: its name, and when, in seconds of `perf_counter`."""

    name: str
    began: float


class Profiler:
    """Measures events by name between `start_profile` and `stop_profile`.

    Events may overlap and come from any thread. While it is off nothing is kept, and `enabled` is
    all that has to be asked.
    """

    def __init__(self) -> None:
        self.enabled = False
        self._times: dict[str, list[float]] = {}

    def start_profile(self) -> None:
        """Begin to measure, from nothing."""
        self._times = {}
        self.enabled = True

    def stop_profile(self) -> None:
        """Measure no more; what was measured can still be asked for."""
        self.enabled = False

    @checked()
    def start_event(self, name: str) -> Event | None:
        """Begin an event; return what `end_event` ends it by, None while the profiler is off."""
        return Event(name, perf_counter()) if self.enabled else None

    @checked(handle=instance((Event, type(None)), "what start_event returned"))
    def end_event(self, handle: Event | None) -> None:
        """End an event; one that began before the profiler was switched off counts."""
        if handle is not None:
            took = perf_counter() - handle.began
            self._times.setdefault(handle.name, []).append(took)

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Measure the block; one that raises counts too."""
        handle = self.start_event(name)
        try:
            yield
        finally:
            self.end_event(handle)

    @checked()
    def get_latencies(self, names: Iterable[str], skip: int = 0) -> dict[str, float]:
        """Return the mean time of each event in seconds, without the first `skip` of each.

        Raises KeyError for a name with no event left.
        """
        return {name: fmean(self._left(name, skip)) for name in names}

    @checked()
    def get_throughputs(
        self, names: Iterable[str], batch_size: int, skip: int = 0
    ) -> dict[str, float]:
        """Return samples a second for each event, if one handles `batch_size` samples.

        `skip` and errors are as for latencies.
        """
        return {name: batch_size / time for name, time in self.get_latencies(names, skip).items()}

    def report(self) -> str:
        """Return a table: for each event how often, and its total, mean, least and most time."""
        rows = [
            f"{'event':<40} {'count':>8} {'total s':>12} {'mean ms':>12} {'min':>10} {'max':>10}"
        ]
        rows += [
            f"{name:<40} {len(times):>8} {sum(times):>12.6f} {1e3 * fmean(times):>12.4f} "
            f"{1e3 * min(times):>10.4f} {1e3 * max(times):>10.4f}"
            for name, times in self._times.items()
        ]
        return "\n".join(rows) + "\n"

    @checked(path=PATH)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to `path`, whole or not at all. Raises `OSError` if that fails."""
        write_text(path, self.report())

    def _get_iter_times(self, name: str, skip: int = 0) -> list[float]:
        """Return the times of an event in order, in seconds; applications ask for them."""
        return self._times.get(name, [])[skip:]

    def _left(self, name: str, skip: int) -> list[float]:
        found = self._get_iter_times(name, skip)
        if not found:
            count = len(self._times.get(name, ()))
            raise KeyError(
                f"of the event '{name}' {count} were measured, {skip} are to be skipped; "
                f"measured were {', '.join(self._times) or 'none'}"
            )
        return found


_NOTHING = nullcontext()


def measuring(profiler: Profiler, name: str) -> AbstractContextManager[None]:
    """Return what measures a block under `name` while the profiler is on."""
    return profiler.event(name) if profiler.enabled else _NOTHING


@contextmanager
def profiled(profiler: Profiler, filename: str | os.PathLike[str] | None) -> Iterator[Profiler]:
    """Profile the block, and write the table to a file, or print it if there is none."""
    profiler.start_profile()
    try:
        yield profiler
    finally:
        finish(profiler, filename)


def finish(profiler: Profiler, filename: str | os.PathLike[str] | None) -> None:
    """Stop profiling, and write the table to a file, or print it if there is none."""
    profiler.stop_profile()
    if filename is None:
        print(profiler.report(), end="")
    else:
        profiler.save(filename)


def run_event(section_types: str | Iterable[str]) -> str:
    """Return what a call of `session.run` with these section types is called."""
    types = [section_types] if isinstance(section_types, str) else list(section_types)
    return f"{_SESSION_RUN}_[{','.join(types).upper()}]" if any(types) else _SESSION_RUN
