"""Fusion groups: which operators are mapped together as one pipelined kernel.

O0 leaves every operator alone, but for those that update one parameter, the light ones of the
gradient of one operator, and casts that only kernels of the host need. O1 also, and first, fuses
what rules describe (`rules.yaml` and the user's file). O3 grows groups along the dataflow: every
operator joins the group that it reads most from, as long as a group holds at most one operator that
does heavy arithmetic and stays within the chip.

Operators of an optimizer belong to the update of one parameter if a tensor flows between them or if
both read one. What is computed from scalars alone (a learning rate, a bias correction) serves all
parameters and belongs to none.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from pef import dtypes
from pef.program import SectionType
from sambac.arch import Arch
from sambac.ops import is_anchor
from sambac.options import Level

from .additions import product_added_to
from .matching import Matcher
from .plans import FusionPlan, Group
from .resources import STREAM_PMUS, Limits, Use, ValueUse, limits_of, op_pcus, value_use
from .rules import load_rules
from .view import DataflowView, depth_first, given

# Published pipelines hold "20+ operators"; a longer one gains little and is hard to read.
MAX_OPS = 32

# Operations for each byte that a product is at most worth when it only adds up rows.
_LIGHT = 4


def plan_fusion(
    view: DataflowView,
    arch: Arch,
    level: Level,
    rules: str | os.PathLike[str] | None = None,
    *,
    at_least: int = 0,
) -> FusionPlan:
    """Group every operator of `view` that is not cloned, as `level` asks.

    `rules` is a file of rules that O1 adds to the built-in ones. O3 stops fusing at `at_least`
    groups, for when that many sections are wanted. Raises `CompileError` for mistakes in the file.
    """
    builder = _Builder(view, limits_of(arch))
    match level:
        case "O0":
            builder.fuse_updates()
            builder.fuse_narrowings()
            builder.fuse_biases()
            builder.fuse_parts()
        case "O1":
            taken = builder.fuse_updates()
            builder.fuse_narrowings()
            builder.fuse_by_rules(Matcher(load_rules(rules), view, builder.order), taken)
            builder.fuse_parts(taken)
        case "O3":
            builder.grow(at_least)
    return builder.plan()


def most_of(view: DataflowView, ops: Iterable[str], values: ValueUse) -> Use:
    """Return what `ops` take of the chip at most, by which groups grow: every value counts.

    What is only rounded has no buffer.
    """
    members = [view.ops[name] for name in ops]

    def is_rounded(value: str) -> bool:
        readers = view.consumers.get(value, ())
        return len(readers) > 0 and all(reader in view.rounds for reader in readers)

    made = [value for op in members for value in op.outputs]
    buffers = sum((values.outside if is_rounded(v) else values.inside)[v] for v in made)
    streams = sum(values.outside[value] for op in members for value in view.reads[op.name])
    return Use(sum(map(op_pcus, members)), buffers + streams)


@dataclass(frozen=True, slots=True)
class _Load:
    """What a group holds: operators, heavy ones among them, and at most so much of the chip."""

    type: SectionType
    ops: int
    anchors: int
    use: Use


class _Builder:
    """The graph of groups while it is contracted, and what each of them takes of the chip.

    A group is called after one of its operators, as in `Contraction`.
    """

    def __init__(self, view: DataflowView, limits: Limits) -> None:
        self.order = depth_first(view.placed)
        self._view = view
        self._limits = limits
        self._values = value_use(view, limits)
        self._groups = Contraction(view.placed, self.order)
        self._loads = {name: self._load(name) for name in self.order}
        self._rule: dict[str, str] = {}

    def fuse_updates(self) -> set[str]:
        """Fuse what updates one parameter, as far as the chip holds it; return what is fused."""
        taken: set[str] = set()
        for ops in update_groups(self._view):
            if len(ops) > 1 and self._fuse(ops, self._together(ops)) is not None:
                taken.update(ops)
        return taken

    def fuse_biases(self) -> None:
        """Fuse a row that is added to a product of matrices with it, as in a Gemm.

        The host has a Gemm for large results alone; what a device does hangs on no size.
        """
        for op in self.order:
            product = product_added_to(self._view, op)
            if product is not None:
                pair = (self._groups.of(product), self._groups.of(op))
                self._fuse(pair, self._together(pair))

    def fuse_parts(self, taken: Collection[str] = ()) -> None:
        """Fuse the light parts of one operator, such as the formula of its gradient.

        A heavy product stays alone: it is an operator of its own for a device. So does what is
        `taken`, by a group already. A cast that rounds what a part makes is no border between them.
        """
        for op in self.order:
            mine = self._view.ops[op]
            if not mine.part_of or self._is_heavy(op) or op in taken:
                continue
            for maker, _ in given(self._view.placed, op):
                rounded = self._rounded(maker)
                if rounded in taken:
                    continue
                other = self._view.ops[rounded]
                pair = (self._groups.of(maker), self._groups.of(op))
                alike = other.part_of == mine.part_of and not self._is_heavy(rounded)
                if alike and pair[0] != pair[1]:
                    self._fuse(pair, self._together(pair))

    def _rounded(self, name: str) -> str:
        """Return the operator whose result `name` only rounds, in its group; else `name`."""
        while (maker := self._view.rounds.get(name)) is not None:
            if self._groups.of(maker) != self._groups.of(name):
                break
            name = maker
        return name

    def _is_heavy(self, name: str) -> bool:
        """Tell whether an operator does much arithmetic for each byte that it touches."""
        op, sizes = self._view.ops[name], self._view.sizes
        touched = sum(sizes[value] for value in (*self._view.reads[name], *op.outputs))
        return is_anchor(op.domain, op.op_type) and op.flops > _LIGHT * touched

    def fuse_narrowings(self) -> None:
        """Fuse each cast that only kernels of the host need with what makes or reads its numbers.

        They have no narrow results, and no operands of several types; a device rounds as it writes
        and as it reads.
        """
        for op in self.order:
            if op in self._view.rounds:
                self._round(op)
            elif op in self._view.loads:
                self._load_for_reader(op)

    def _load_for_reader(self, cast: str) -> None:
        """Fuse a cast of what comes from memory with who reads it first, however large that is."""
        groups = (self._groups.of(self._view.loads[cast]), self._groups.of(cast))
        load, own = (self._loads[group] for group in groups)
        if load.type is not own.type:
            return
        use = Use(load.use.pcus + own.use.pcus, load.use.pmus + STREAM_PMUS)
        self._merge(groups, replace(load, ops=load.ops + 1, use=use))

    def _round(self, cast: str) -> bool:
        """Fuse a cast with what it rounds, however large that is: it makes it no larger."""
        maker = self._groups.of(self._view.rounds[cast])
        load, own = self._loads[maker], self._loads[self._groups.of(cast)]
        if self._groups.of(cast) == maker or load.type is not own.type:
            return False
        buffers = sum(self._values.inside[value] for value in self._view.ops[cast].outputs)
        use = Use(load.use.pcus + own.use.pcus, load.use.pmus + buffers)
        return self._merge((maker, cast), replace(load, ops=load.ops + 1, use=use)) is not None

    def fuse_by_rules(self, matcher: Matcher, taken: set[str]) -> None:
        """Fuse what the rules match, the highest priority first; an operator is fused once.

        Operators in `taken` are in a group already. A cast is in that of what it rounds.
        """
        for rule, ops in matcher.matches(taken):
            groups = tuple(dict.fromkeys(map(self._groups.of, ops)))
            group = self._fuse(groups, self._together(groups))
            if group is not None:
                self._rule[group] = rule.name
                taken.update(self._groups.members(group))

    def grow(self, at_least: int) -> None:
        """Let operators join the group that they read most from and can join.

        This ends early when `at_least` groups are left.
        """
        left = len(self.order)
        for op in self.order:
            if left <= at_least:
                break
            if op in self._view.rounds and self._round(op):
                left -= 1
                continue
            for feeder in self._feeders(op):
                pair = (feeder, op)  # nothing has joined `op` yet, so it is its own group
                load = self._together(pair)
                small = load.ops <= MAX_OPS and load.anchors <= 1
                if small and self._fuse(pair, load) is not None:
                    left -= 1
                    break

    def plan(self) -> FusionPlan:
        """Return the groups in an order in which they can be executed."""
        position = {name: index for index, name in enumerate(self._view.ops)}
        return FusionPlan(
            tuple(self._group(members, position) for members in self._groups.in_order())
        )

    def _group(self, members: Sequence[str], position: dict[str, int]) -> Group:
        names = sorted(members, key=position.__getitem__)
        heaviest = max(names, key=lambda name: self._view.ops[name].flops)
        return Group(heaviest, tuple(names), self._rule.get(self._groups.of(names[0]), ""))

    def _feeders(self, op: str) -> list[str]:
        """Return the groups that `op` reads from, those that give it most bytes first."""
        nbytes: Counter[str] = Counter()
        for maker, crossing in given(self._view.placed, op):
            nbytes[self._groups.of(maker)] += crossing.nbytes
        return sorted(nbytes, key=lambda group: -nbytes[group])

    def _fuse(self, groups: Sequence[str], load: _Load) -> str | None:
        """Merge groups that are of one type, fit the chip and do not wait for others between."""
        if len({self._loads[group].type for group in groups}) > 1:
            return None
        return self._merge(groups, load) if load.use.within(self._limits) else None

    def _merge(self, groups: Sequence[str], load: _Load) -> str | None:
        merged = self._groups.merge(groups)
        if merged is not None:
            self._loads[merged] = load
        return merged

    def _together(self, groups: Sequence[str]) -> _Load:
        """Add up loads. Every output counts as a buffer, so this is never below the true use."""
        loads = [self._loads[group] for group in groups]
        return _Load(
            type=loads[0].type,
            ops=sum(load.ops for load in loads),
            anchors=sum(load.anchors for load in loads),
            use=Use(sum(load.use.pcus for load in loads), sum(load.use.pmus for load in loads)),
        )

    def _load(self, name: str) -> _Load:
        op = self._view.ops[name]
        anchors = int(is_anchor(op.domain, op.op_type))
        return _Load(op.section_type, 1, anchors, most_of(self._view, (name,), self._values))


class Contraction:
    """A partition of a graph that can be executed part by part, and the graph of the parts.

    A part is named after one of its nodes. The parts are kept in a topological order, and that
    order is what makes merging cheap: merging makes a cycle exactly if a path leaves the merged
    parts and comes back, and such a path lies between the first and the last of them. Only that
    stretch is searched, and when the merge is possible only that stretch is put into a new order.
    Parts further apart than `reach` are never merged, which bounds the work by the number of
    attempts.
    """

    def __init__(self, graph: nx.DiGraph[str], order: Sequence[str], reach: int = 256) -> None:
        """Begin with every node alone; `order` is a topological order of `graph`."""
        self._graph: nx.DiGraph[str] = nx.DiGraph()
        self._graph.add_nodes_from(order)
        self._graph.add_edges_from(graph.edges)
        self._reach = reach
        self._of = {node: node for node in order}
        self._members = {node: [node] for node in order}
        self._order: list[str | None] = list(order)  # parts, and holes that merging left
        self._slot = {node: slot for slot, node in enumerate(order)}  # where each part stands

    def of(self, node: str) -> str:
        """Return the part that `node` is in."""
        return self._of[node]

    def members(self, part: str) -> Sequence[str]:
        """Return the nodes of a part."""
        return self._members[part]

    def in_order(self) -> list[list[str]]:
        """Return the nodes of all parts, in an order in which the parts can be executed."""
        return [self._members[part] for part in self._order if part is not None]

    def merge(self, parts: Sequence[str]) -> str | None:
        """Merge different parts into the first of them and return it; None if there is a cycle."""
        by_slot = sorted(parts, key=self._slot.__getitem__)
        first, last = self._slot[by_slot[0]], self._slot[by_slot[-1]]
        if last - first > self._reach:
            return None
        merged = frozenset(parts)
        before = self._leading_to(merged, first)
        if any(not merged.isdisjoint(self._graph.pred[part]) for part in before):
            return None
        target = by_slot[0]
        self._rearrange(range(first, last + 1), merged, before, target)
        for part in by_slot[1:]:
            nx.contracted_nodes(self._graph, target, part, self_loops=False, copy=False)
            joining = self._members.pop(part)
            self._members[target] += joining
            self._of.update(dict.fromkeys(joining, target))
        return target

    def _leading_to(self, merged: Collection[str], first: int) -> frozenset[str]:
        """Return the other parts behind the slot `first` from which paths lead to `merged`."""

        def outside(part: str) -> list[str]:
            return [
                source
                for source in self._graph.pred[part]
                if source not in merged and self._slot[source] > first
            ]

        edges = (nx.generic_bfs_edges(self._graph, part, outside) for part in merged)
        return frozenset(source for found in edges for _, source in found)

    def _rearrange(
        self, stretch: range, merged: Collection[str], before: Collection[str], target: str
    ) -> None:
        """Put what leads to `merged` in front of it, and the rest of the stretch behind."""
        slots = slice(stretch.start, stretch.stop)
        others = [part for part in self._order[slots] if part is not None and part not in merged]
        placed = [
            *(part for part in others if part in before),
            target,
            *(part for part in others if part not in before),
        ]
        self._order[slots] = [*placed, *[None] * (len(stretch) - len(placed))]
        for slot, part in enumerate(placed, start=stretch.start):
            self._slot[part] = slot


# Hyperparameters are float64 scalars, step counters int64 scalars.
_SCALARS = frozenset(
    {dtypes.from_numpy(np.dtype(np.float64)), dtypes.from_numpy(np.dtype(np.int64))}
)


def update_groups(view: DataflowView) -> list[tuple[str, ...]]:
    """Return the groups of operators, in the order of `view`, that each update one parameter."""
    reads = {
        name: values
        for name, values in view.reads.items()
        if view.ops[name].section_type is SectionType.OPT
    }
    shared = _shared(view, reads)
    graph: nx.Graph[str] = nx.Graph()
    for name, values in reads.items():
        for value in (*values, *view.ops[name].outputs):
            if value not in shared:
                graph.add_edge(f"op {name}", f"value {value}")
    position = {f"op {name}": at for at, name in enumerate(reads)}
    names = list(reads)
    groups = []
    for component in nx.connected_components(graph):
        members = sorted(position[node] for node in component if node in position)
        groups.append(tuple(names[at] for at in members))
    return sorted(groups, key=lambda group: position[f"op {group[0]}"])


def _shared(view: DataflowView, reads: dict[str, tuple[str, ...]]) -> set[str]:
    """Return the values that follow from scalars alone, those included."""
    shared = {
        name
        for name in view.inputs
        if view.values[name].shape == () and view.values[name].dtype in _SCALARS
    }
    for name, values in reads.items():
        if shared.issuperset(values):
            shared.update(view.ops[name].outputs)
    return shared
