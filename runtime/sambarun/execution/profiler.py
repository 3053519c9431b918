"""Profiles: how long each section took, as a table and as a Chrome trace."""

from __future__ import annotations

import os
from typing import NamedTuple

import pef
from sambarun.arrays import Array

from .spans import OperatorSpan, Span


class Profile(NamedTuple):
    """A measured run of `program`: its results by name, a span per call, and those of operators.

    Profiled sections are never linked: an unprofiled run of several sections may be faster than
    the sum of the spans.
    """

    outputs: dict[str, Array]
    spans: tuple[Span, ...]
    program: pef.Program
    operators: tuple[OperatorSpan, ...] = ()

    def trace(self) -> dict[str, object]:
        """Return the profile in the Chrome trace format, times in microseconds.

        It has what was measured, what was modelled for the same calls, and what the regions of the
        device hold meanwhile.
        """
        # Imported here because few runs are profiled, and all of them wait for imports.
        from .trace import events

        # Without `displayTimeUnit`, which some versions of Perfetto take for the unit of all times.
        return {
            "otherData": {"linked": "no: sections were run one by one"},
            "traceEvents": list(events(self.program, self.spans, self.operators)),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Chrome trace to `path`, whole or not at all; raises `OSError` if it cannot."""
        # As in `trace`.
        import json

        from pef.files import write_text

        write_text(path, json.dumps(self.trace(), indent=1) + "\n")
