"""The independent check of a fusion plan. It shares no code with the planner."""

from __future__ import annotations

from collections import Counter

import networkx as nx

from .plans import FusionPlan
from .view import DataflowView


def check_fusion(view: DataflowView, plan: FusionPlan) -> list[str]:
    """Return what is wrong with `plan`, nothing if it is right.

    Groups cover every operator that is not cloned exactly once, have distinct names and one
    section type each, list operators in the model's order, and are convex: the graph of groups
    has no cycle, so that each group can run as a whole.
    """
    problems = [*_covering(view, plan), *_names(plan)]
    if problems:
        return problems
    return [*_types(view, plan), *_orders(view, plan), *_cycle(view, plan)]


def _covering(view: DataflowView, plan: FusionPlan) -> list[str]:
    counts = Counter(op for group in plan.groups for op in group.ops)
    problems = [
        f"operator {op!r} is in {counts[op]} groups, expected 1"
        for op, facts in view.ops.items()
        if not facts.cloned and counts[op] != 1
    ]
    for op in counts:
        if op not in view.ops:
            problems.append(f"operator {op!r} is not in the model")
        elif view.ops[op].cloned:
            problems.append(f"operator {op!r} is cloned and must be in no group")
    return problems + [f"group {group.name!r} is empty" for group in plan.groups if not group.ops]


def _names(plan: FusionPlan) -> list[str]:
    counts = Counter(group.name for group in plan.groups)
    return [f"{count} groups are named {name!r}" for name, count in counts.items() if count > 1]


def _types(view: DataflowView, plan: FusionPlan) -> list[str]:
    return [
        f"group {group.name!r} mixes section types"
        for group in plan.groups
        if len({view.ops[op].section_type for op in group.ops}) > 1
    ]


def _orders(view: DataflowView, plan: FusionPlan) -> list[str]:
    place = {op: index for index, op in enumerate(view.ops)}
    return [
        f"group {group.name!r} does not list its operators in topological order"
        for group in plan.groups
        if [place[op] for op in group.ops] != sorted(place[op] for op in group.ops)
    ]


def _cycle(view: DataflowView, plan: FusionPlan) -> list[str]:
    """Look for groups that wait for each other, each clone counting as part of its readers."""
    home = {op: index for index, group in enumerate(plan.groups) for op in group.ops}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(plan.groups)))
    for op, index in home.items():
        graph.add_edges_from((home[maker], index) for maker in sorted(_makers(view, op)))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    if nx.is_directed_acyclic_graph(graph):
        return []
    cycle = " -> ".join(repr(plan.groups[edge[0]].name) for edge in nx.find_cycle(graph))
    return [f"groups wait for each other: {cycle}"]


def _makers(view: DataflowView, op: str) -> set[str]:
    """Return the operators in groups that `op` waits for, seen through clones."""
    makers: set[str] = set()
    seen = {op}
    pending = [op]
    while pending:
        for maker in view.graph.predecessors(pending.pop()):
            if not view.ops[maker].cloned:
                makers.add(maker)
            elif maker not in seen:
                seen.add(maker)
                pending.append(maker)
    return makers
