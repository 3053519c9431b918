"""Sections: which fusion groups run together, between two trips to memory."""

from __future__ import annotations

from pef.program import SectionType

from sambac.arch import Arch
from sambac.options import Level, Mapping_
from .plans import FusionPlan, PlannedSection, SectionPlan
from .view import DataflowView


def plan_sections(
    view: DataflowView,
    fusion: FusionPlan,
    arch: Arch,
    level: Level,
    *,
    count: int | None = None,
    mapping: Mapping_ = "section",
) -> SectionPlan:
    """Cut the groups into sections."""
    indices = range(len(fusion.groups))
    cuts = [(i,) for i in indices] if level != "O3" else [tuple(indices)] if indices else []
    if count:
        size = -(-len(indices) // count)
        cuts = [tuple(indices[i : i + size]) for i in range(0, len(indices), size)]
    sections = tuple(PlannedSection(f"section_{i}", SectionType.FWD, c) for i, c in enumerate(cuts))
    return SectionPlan(sections, tuple(range(len(sections))), 0, 0)
