"""Fusion groups: which operators are mapped together as one pipelined kernel."""

from __future__ import annotations

from pathlib import Path

from sambac.arch import Arch
from sambac.options import Level
from .plans import FusionPlan, Group
from .view import DataflowView


def plan_fusion(
    view: DataflowView, arch: Arch, level: Level, rules: Path | None = None
) -> FusionPlan:
    """Group every operator that is not cloned."""
    return FusionPlan(
        tuple(Group(op.name, (op.name,)) for op in view.ops.values() if not op.cloned)
    )
