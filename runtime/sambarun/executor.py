"""The executable: a loaded program that runs on the caller's arrays."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

import pef

from .arrays import Array
from .errors import RunError
from .image import Image
from .profiler import Profile, Span, Stopwatch
from .schedule import Selection, selection
from .steps import Step
from .workspace import Workspace

# What `run` accepts to say which sections are meant.
SectionTypes = str | Iterable[str | pef.SectionType]
_EVERYTHING = Selection()
_BUSY = "This executable is running in another thread; give each thread its own clone()."
_CLOSED = "This executable has been closed; load the program again."


class Executable:
    """A program in memory, made by `load`.

    One executable has one memory, so one run at a time: a second thread that calls `run` meanwhile
    gets a `RunError`. `clone` makes another executable that shares the sessions and the weights.
    The executable owns all memory its sessions use, and keeps the caller's arrays until the next
    run. It is a context manager; `close` gives back the memory.
    """

    def __init__(self, image: Image, link: bool) -> None:
        self._image = image
        self._link = link
        self._workspace: Workspace | None = Workspace(image)
        self._busy = threading.Lock()

    @property
    def program(self) -> pef.Program:
        """The program as the file describes it."""
        return self._image.program

    def prepare(
        self,
        *,
        section_types: SectionTypes | None = None,
        section_ids: Iterable[int] | None = None,
        calls: Iterable[int] | None = None,
    ) -> None:
        """Do what the first `run` of the same sections would do before it computes anything."""
        workspace = self._enter()
        try:
            workspace.plan(self._select(section_types, section_ids, calls), self._link)
            self._image.checks.join()
        finally:
            self._busy.release()

    def run(
        self,
        inputs: Mapping[str, object],
        *,
        section_types: SectionTypes | None = None,
        section_ids: Iterable[int] | None = None,
        calls: Iterable[int] | None = None,
        copy: bool = True,
    ) -> dict[str, Array]:
        """Run the schedule, or what is selected of it, and return the results by name.

        `inputs` holds a value for each of the model's inputs: an array of exactly the expected type
        and shape, a list for a sequence, a dict for a map, None for an absent optional. Inputs with
        a default may be left out. `section_types` (`"FWD"`), `section_ids` and `calls` (positions
        in the schedule) select what to run; what selected sections read from others is taken from
        earlier runs of selected sections (a linked run of the whole schedule keeps only its
        results), or from `inputs` by the name of the symbol.

        Returns the model's outputs that were computed, or the outputs of the selected sections if
        there are none among them. Arrays are the caller's own. With `copy=False` they may be views
        of the executable's memory, which the next run overwrites.

        Raises `RunError` for wrong inputs (all problems at once), for unknown sections, for damage
        in the file, and when onnxruntime fails.
        """
        workspace = self._enter()
        try:
            plan = workspace.plan(self._select(section_types, section_ids, calls), self._link)
            workspace.attach(plan, inputs)
            workspace.run(plan)
            return workspace.results(plan, copy)
        finally:
            self._busy.release()

    def profile(
        self,
        inputs: Mapping[str, object],
        *,
        section_types: SectionTypes | None = None,
        section_ids: Iterable[int] | None = None,
        calls: Iterable[int] | None = None,
    ) -> Profile:
        """Run like `run`, section by section without linking, and measure each call.

        The first run of a section includes work that later ones do not have to repeat: profile an
        executable that has run before to see its usual speed.
        """
        workspace = self._enter()
        try:
            plan = workspace.plan(self._select(section_types, section_ids, calls), link=False)
            workspace.attach(plan, inputs)
            watch = Stopwatch()
            workspace.run(plan, watch)
            spans = map(self._span, plan.steps, watch.laps)
            return Profile(workspace.results(plan, copy=True), tuple(spans))
        finally:
            self._busy.release()

    def clone(self) -> Executable:
        """Return an executable with memory of its own that shares sessions and weights."""
        if self._workspace is None:
            raise RunError(_CLOSED)
        return Executable(self._image.share(), self._link)

    def close(self) -> None:
        """Give back memory and sessions. Does nothing if already closed."""
        if self._workspace is not None:
            self._enter()
            self._workspace = None
            self._busy.release()
            self._image.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _enter(self) -> Workspace:
        """Return the workspace and hold it until `_busy` is released; nobody waits for it."""
        if not self._busy.acquire(blocking=False):
            raise RunError(_BUSY)
        if self._workspace is None:
            self._busy.release()
            raise RunError(_CLOSED)
        return self._workspace

    def _select(
        self,
        section_types: SectionTypes | None,
        section_ids: Iterable[int] | None,
        calls: Iterable[int] | None,
    ) -> Selection:
        if section_types is None and section_ids is None and calls is None:
            return _EVERYTHING
        return selection(self.program, section_types, section_ids, calls)

    def _span(self, step: Step, lap: tuple[int, int]) -> Span:
        section = self.program.sections[step.unit.sections[0]]
        start, duration = lap
        return Span(
            call=step.unit.calls[0],
            section=step.unit.sections[0],
            name=section.name,
            type=section.type.name,
            start=start,
            duration=duration,
        )
