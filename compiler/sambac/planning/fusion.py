"""Fusion groups: which operators are mapped together as one pipelined kernel.

O0 leaves every operator alone. O1 fuses what rules describe (`rules.yaml` and the user's file).
O3 grows groups along the dataflow: every operator joins the group that it reads most from, as
long as a group holds at most one operator that does heavy arithmetic and stays within the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sambac.arch import Arch
from sambac.ops import is_anchor
from sambac.options import Level

from .clusters import Clusters
from .flow import Flow, flow_of
from .matching import Matcher
from .plans import FusionPlan, Group
from .resources import STREAM_PMUS, Limits, Use, buffer_pmus, limits_of, op_pcus
from .rules import load_rules
from .view import DataflowView

# Published pipelines hold "20+ operators"; a longer one gains little and is hard to read.
_MAX_OPS = 32


def plan_fusion(
    view: DataflowView, arch: Arch, level: Level, rules: Path | None = None
) -> FusionPlan:
    """Group every operator of `view` that is not cloned, as `level` asks.

    `rules` is a file of rules that O1 adds to the built-in ones. Raises `CompileError` for
    mistakes in that file.
    """
    builder = _Builder(view, limits_of(arch))
    match level:
        case "O0":
            pass
        case "O1":
            builder.fuse_by_rules(Matcher(load_rules(rules), view, builder.flow))
        case "O3":
            builder.grow()
    return builder.plan()


@dataclass(frozen=True, slots=True)
class _Load:
    """What a cluster holds: operators, heavy ones among them, and at most so much of the chip."""

    ops: int
    anchors: int
    use: Use


class _Builder:
    """Clusters of operators, and what each of them takes of the chip."""

    def __init__(self, view: DataflowView, limits: Limits) -> None:
        self.flow: Flow = flow_of(view)
        self._view = view
        self._limits = limits
        self._ops = [view.ops[name] for name in self.flow.names]
        self._clusters = Clusters(self.flow.preds)
        self._loads = [self._load(index) for index in range(len(self._ops))]
        self._rule: dict[int, str] = {}

    def fuse_by_rules(self, matcher: Matcher) -> None:
        """Fuse what the rules match, the highest priority first; an operator is fused once."""
        taken: set[int] = set()
        for rule, ops in matcher.matches(taken):
            # An operator that is not fused yet is its own cluster.
            cluster = self._merge(ops) if self._fits(ops) else None
            if cluster is not None:
                self._rule[cluster] = rule.name
                taken.update(ops)

    def grow(self) -> None:
        """Let every operator join the group that it reads most from and can join."""
        for op in range(len(self._ops)):
            for cluster in self._feeders(op):
                together = (cluster, self._clusters.of(op))
                if self._may_join(together) and self._merge(together) is not None:
                    break

    def plan(self) -> FusionPlan:
        """Return the groups in an order in which they can be executed."""
        position = {name: index for index, name in enumerate(self._view.ops)}
        return FusionPlan(
            tuple(self._group(members, position) for members in self._clusters.in_order())
        )

    def _group(self, members: Sequence[int], position: dict[str, int]) -> Group:
        names = sorted((self.flow.names[op] for op in members), key=position.__getitem__)
        heaviest = max(names, key=lambda name: self._view.ops[name].flops)
        return Group(heaviest, tuple(names), self._rule.get(self._clusters.of(members[0]), ""))

    def _feeders(self, op: int) -> list[int]:
        """Return the clusters that `op` reads from, those that give it most bytes first."""
        given: dict[int, int] = {}
        producer, values = self._view.producer, self._view.values
        number = {self.flow.names[pred]: pred for pred in self.flow.preds[op]}
        for value in self.flow.reads[op]:
            if value in producer:
                cluster = self._clusters.of(number[producer[value]])
                given[cluster] = given.get(cluster, 0) + (values[value].nbytes or 0)
        return sorted(given, key=lambda cluster: -given[cluster])

    def _may_join(self, clusters: Sequence[int]) -> bool:
        loads = [self._loads[cluster] for cluster in clusters]
        return (
            sum(load.ops for load in loads) <= _MAX_OPS
            and sum(load.anchors for load in loads) <= 1
            and self._fits(clusters)
        )

    def _fits(self, clusters: Sequence[int]) -> bool:
        """Return whether clusters have one type and are within the chip's limits together."""
        kinds = {self._ops[self._clusters.members(c)[0]].section_type for c in clusters}
        return len(kinds) == 1 and self._together(clusters).use.within(self._limits)

    def _merge(self, clusters: Sequence[int]) -> int | None:
        load = self._together(clusters)
        merged = self._clusters.merge(clusters)
        if merged is not None:
            self._loads[merged] = load
        return merged

    def _together(self, clusters: Sequence[int]) -> _Load:
        """Add up loads. Every output counts as a buffer, so this is never below the true use."""
        loads = [self._loads[cluster] for cluster in clusters]
        return _Load(
            ops=sum(load.ops for load in loads),
            anchors=sum(load.anchors for load in loads),
            use=Use(sum(load.use.pcus for load in loads), sum(load.use.pmus for load in loads)),
        )

    def _load(self, index: int) -> _Load:
        op = self._ops[index]
        buffers = sum(
            buffer_pmus(self._view.values[value].nbytes, self._limits.pmu_bytes)
            for value in op.outputs
        )
        streams = STREAM_PMUS * len(self.flow.reads[index])
        return _Load(1, int(is_anchor(op.domain, op.op_type)), Use(op_pcus(op), buffers + streams))
