"""What a run is asked for: the one type by which sections of a program are chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypedDict, get_args

import pef
from pef.arguments import FLAG, NAME, WHOLES, instance, some

from .errors import RunError, items, require

Reduction = Literal["none", "normal", "inorder", "optimal"]
"""What becomes of REDUCE sections; see `reductions`."""

SectionTypes = str | Iterable[str | pef.SectionType]
"""One type of sections, or several, by name or as members of `pef.SectionType`."""

_TYPES = some(
    instance((str, pef.SectionType), ""), "a type of sections, such as 'FWD', or a list of these,"
)


class SelectionWords(TypedDict, total=False):
    """Keywords that make a `Selection`: its fields, of which any may be left out."""

    section_types: SectionTypes | None
    section_ids: Iterable[int] | None
    calls: Iterable[int] | None
    train: bool
    graph: str | None
    reduction: Reduction


@dataclass(frozen=True)
class Selection:
    """Which part of a program to run; without anything, the whole schedule of its first graph.

    `section_types` (`"FWD"`, or several), `section_ids` (positions in the section table) and
    `calls` (positions in the schedule) let through what they name; None lets everything through.
    `graph` is the name of the graph, or of a model that trains; the first one is meant where there
    are several and nothing else says which. FWD alone evaluates a program that trains, unless
    `train` is set: then it is the forward part of a step. `reduction` says what becomes of REDUCE
    sections if there is a reducer: `none`, `normal`, `inorder` or `optimal`, see `reductions`.

    Raises `RunError` for what is of the wrong kind. Whether a program has it shows when it is run.
    """

    section_types: SectionTypes | None = None
    section_ids: Iterable[int] | None = None
    calls: Iterable[int] | None = None
    train: bool = False
    graph: str | None = None
    reduction: Reduction = "normal"
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        types = self.section_types
        if isinstance(types, str):
            object.__setattr__(self, "section_types", (types,))
        elif types is not None:
            object.__setattr__(self, "section_types", items("section_types", types, _TYPES))
        for name in ("section_ids", "calls"):
            asked = getattr(self, name)
            if asked is not None:
                object.__setattr__(self, name, items(name, asked, WHOLES))
        require(
            train=(self.train, FLAG),
            graph=(self.graph, NAME.or_none()),
            reduction=(self.reduction, NAME),
        )
        if self.reduction not in get_args(Reduction):
            known = ", ".join(get_args(Reduction))
            raise RunError(f"There is no reduction '{self.reduction}'; it is one of {known}.")
        object.__setattr__(self, "_hash", hash(self._fields()))

    def _fields(self) -> tuple[object, ...]:
        kind = self.section_types, self.section_ids, self.calls
        return (*kind, self.train, self.graph, self.reduction)

    def __hash__(self) -> int:
        return self._hash  # asked for in every run

    def __reduce__(self) -> tuple[type[Selection], tuple[object, ...]]:
        return Selection, self._fields()  # texts have another hash in another process

    @cached_property
    def evaluates(self) -> bool:
        """Whether the forward sections alone run, as in evaluation."""
        return not self.train and self.section_types == ("FWD",)
