"""The graph of symbols: which moments of the schedule touch what lies in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import networkx as nx


class Moment(NamedTuple):
    """A position of the schedule: of a call, or of the caller, who gives before and takes after."""

    position: int
    is_call: bool


SymbolGraph: TypeAlias = "nx.DiGraph[str | Moment]"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Positions in the schedule, inclusive: -1 is before the first call, its length after the last.

    `accesses` counts the calls that write or read the value, the caller's own included.
    """

    first: int
    last: int
    accesses: int
