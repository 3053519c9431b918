"""What numbers and texts of a program stand for, stated in the types of its fields.

A position in a table is an `int` like any size; its annotation says which table. So whoever walks
over a program (`pef.report.diff`) can follow references without a list of fields of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class RowOf:
    """The number is a position in this table of `Program`."""

    table: str


@dataclass(frozen=True, slots=True)
class Nameless:
    """The rows of the table are known by what they hold alone, not by a name."""


@dataclass(frozen=True, slots=True)
class SchedulePosition:
    """The number is a position in the schedule, -1 before and its length after the last call."""


@dataclass(frozen=True, slots=True)
class JsonObject:
    """The text is a JSON object with sorted keys."""


SymbolIndex = Annotated[int, RowOf("symbols")]
SectionIndex = Annotated[int, RowOf("sections")]
SegmentIndex = Annotated[int, RowOf("segments")]
ProgramIndex = Annotated[int, RowOf("programs")]
AllocationIndex = Annotated[int, RowOf("allocations")]
CallPosition = Annotated[int, SchedulePosition()]
Json = Annotated[str, JsonObject()]
