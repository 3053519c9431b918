"""The plans that planners return: frozen, keyed by names, free of references to the graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pef.program import Estimate, Region, RegionKind, SectionType


@dataclass(frozen=True, slots=True)
class Group:
    """A fusion group: operators (in topological order) mapped together as one kernel."""

    name: str
    ops: tuple[str, ...]
    rule: str = ""


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """Every operator that is not cloned stands in exactly one group; groups are convex."""

    groups: tuple[Group, ...]

    def ops_of(self, groups: Iterable[int]) -> list[str]:
        """Return the operators of some groups, by number."""
        return [op for group in groups for op in self.groups[group].ops]


@dataclass(frozen=True, slots=True)
class PlannedSection:
    """A section: indices into `FusionPlan.groups`, in topological order."""

    name: str
    type: SectionType
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SectionPlan:
    """Sections in an order in which each reads only what earlier ones wrote.

    `schedule` lists section indices. `traffic` is the number of bytes crossing between sections,
    `lower_bound` what no cut into this many sections can go below, `warnings` what a user should
    know (a section over a limit, with numbers).
    """

    sections: tuple[PlannedSection, ...]
    schedule: tuple[int, ...]
    traffic: int
    lower_bound: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveSets:
    """What is live where one section begins and ends, as value names.

    `ops` are all operators it runs in topological order, cloned ones included; `live_in` come
    from the caller or other sections, `weights` have content in the model, `live_out` are read by
    other sections or are outputs of the model.
    """

    ops: tuple[str, ...]
    live_in: tuple[str, ...]
    weights: tuple[str, ...]
    live_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A request for memory: `size` bytes alive over the calls `first` to `last`, inclusive.

    `persistent` buffers live through the whole program and share with nobody. `region` is where
    the user wants it, or None. `traffic` is how many bytes move to and from it in one run of the
    schedule. `weight` buffers are the last to leave HBM.
    """

    name: str
    size: int
    first: int
    last: int
    persistent: bool = False
    weight: bool = False
    region: RegionKind | None = None
    traffic: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a buffer lies; `spilled` if that is only because HBM is full."""

    region: RegionKind
    address: int
    size: int
    spilled: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A placement for every buffer, by name, and the use of each region of the device."""

    placements: dict[str, Placement]
    regions: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class CostReport:
    """One estimate for each section of a program, in order, and what users should know of them."""

    sections: tuple[Estimate, ...]
    warnings: tuple[str, ...] = ()
