"""The independent check of a fusion plan."""

from __future__ import annotations

from .plans import FusionPlan
from .view import DataflowView


def check_fusion(view: DataflowView, plan: FusionPlan) -> list[str]:
    """Return what is wrong with `plan`, nothing if it is right."""
    return []
