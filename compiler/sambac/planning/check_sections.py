"""The independent check of a section plan and its borders."""

from __future__ import annotations

from collections.abc import Sequence

from sambac.arch import Arch
from .plans import Boundary, FusionPlan, SectionPlan
from .view import DataflowView


def check_sections(
    view: DataflowView,
    fusion: FusionPlan,
    plan: SectionPlan,
    borders: Sequence[Boundary],
    arch: Arch | None = None,
) -> list[str]:
    """Return what is wrong with `plan`, nothing if it is right."""
    return []
