"""Why an operator is in its fusion group, and so in its section, and how it is written there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx as nx

from pef.program import FusionGroup, Operator
from pef.report.recorded import take_formulations
from pef.text import human_bytes, human_count, plural, shape_text
from sambac.graph.decisions import GUESS
from sambac.ops import is_anchor
from sambac.planning.additions import product_added_to
from sambac.planning.fusion import MAX_OPS, most_of, update_groups
from sambac.planning.matching import Matcher
from sambac.planning.plans import PlannedStage
from sambac.planning.resources import limits_of, value_use
from sambac.planning.rules import load_rules
from sambac.planning.view import DataflowView, contracted, depth_first, given
from sambac.reconstruct.rebuilt import Rebuilt

from .cuts import excess, option, over
from .facts import Fact, quoted, seconds, value_text

_TOPIC = "Why it is in this section"
_WORK = "What it does there"
_WRITTEN = "How it is written"
_SHAPES = 4


@dataclass(frozen=True)
class OperatorPlace:
    """Where an operator is in a program."""

    section: int
    group: FusionGroup
    operator: Operator


def operator_facts(rebuilt: Rebuilt, place: OperatorPlace) -> Iterator[Fact]:
    """Yield why the operator is where it is, and what it takes there."""
    section = rebuilt.program.sections[place.section]
    op, others = place.operator, len(place.group.operators) - 1
    beside = f" with {plural(others, 'other operator')}" if others else ", alone"
    yield Fact(
        _TOPIC,
        f"It is in section {place.section}, {quoted(section.name)}, in the fusion group "
        f"{quoted(place.group.name)}{beside}. A group is in one section as a whole.",
        {"section": place.section, "group": place.group.name, "operators": others + 1},
    )
    yield from _grouped(rebuilt, place)
    yield from _formulations(rebuilt, op.name)
    view = rebuilt.place[place.section][0].plan.view
    yield _sizes(view, op.name)
    rate = rebuilt.arch.flops_per_pcu
    if op.pcus:
        took = op.flops / (op.pcus * rate)
        yield Fact(
            _WORK,
            f"Its {human_count(op.flops)}FLOP on {op.pcus} of "
            f"{plural(section.estimate.pcus, 'PCU')} take {seconds(took)}; the section computes "
            f"for {seconds(section.estimate.compute)}.",
            {"flops": op.flops, "pcus": op.pcus, "seconds": took},
        )
    else:
        yield Fact(_WORK, "It computes no numbers, so it has no compute unit.", {"pcus": 0})
    for value in view.ops[op.name].holds:
        # What is cast on its way there takes the room of what it was, as in the estimate.
        nbytes = sum(view.values[base].modelled_nbytes for base in view.behind(value))
        yield Fact(
            _WORK,
            f"It keeps {value_text(rebuilt, view, value)} on chip as a whole, "
            f"{human_bytes(nbytes)}, while the others stream past it.",
            {"held": value, "bytes": nbytes},
        )


def _sizes(view: DataflowView, op: str) -> Fact:
    """Say what the operator reads and makes, from whose shapes its work follows."""

    def shapes(names: Sequence[str]) -> str:
        told = [shape_text(view.values[name].shape) for name in names if name in view.values]
        more = f" and {len(told) - _SHAPES} more" if len(told) > _SHAPES else ""
        return f"{', '.join(told[:_SHAPES]) or 'nothing that is no literal'}{more}"

    facts = view.ops[op]
    reads, makes = shapes(facts.inputs), shapes(facts.outputs)
    text = f"It reads {reads} and makes {makes}."
    return Fact(_WORK, text, {"reads": reads, "makes": makes})


def _grouped(rebuilt: Rebuilt, place: OperatorPlace) -> Iterator[Fact]:
    """Yield why the group is as it is, by the level of the program."""
    stage = rebuilt.place[place.section][0].plan
    if option(rebuilt, "level") == "O3":
        yield from _Grown(rebuilt, stage, place).facts()
        return
    members = {op.name for op in place.group.operators}
    if len(members) == 1:
        if option(rebuilt, "level") == "O0":
            yield Fact(_TOPIC, "At O0 an operator is a group and a section of its own.", {})
        else:
            yield Fact(_TOPIC, "No fusion rule of O1 took it, so it is a group of its own.", {})
        return
    yield _joined(rebuilt, stage, members)


def _joined(rebuilt: Rebuilt, stage: PlannedStage, members: set[str]) -> Fact:
    """Say why operators are one group at O0 or O1."""
    view = stage.view
    if any(members <= set(group) for group in update_groups(view)):
        return Fact(
            _TOPIC,
            f"All {len(members)} operators of the group update one parameter, which counts as one "
            "operator.",
            {"reason": "update"},
        )
    if option(rebuilt, "level") == "O1":
        matcher = Matcher(load_rules(None), view, depth_first(view.placed))
        rules = [
            rule.name
            for rule, ops in matcher.matches(view.ops.keys() - members)
            if set(ops) <= members
        ]
        if rules:
            return Fact(
                _TOPIC,
                f"The fusion rule {quoted(rules[0])} matches operators of the group.",
                {"reason": "rule", "rule": rules[0]},
            )
        if rules_file := option(rebuilt, "fusion_rules"):
            return Fact(
                _TOPIC,
                f"No built-in fusion rule matches the group; {quoted(str(rules_file))} has others.",
                {"reason": "rules of a file", "file": str(rules_file)},
            )
    casts = [name for name in members if _partner(view, name) in members]
    biases = [name for name in members if product_added_to(view, name) in members]
    if biases and len(members) - len(casts) - len(biases) == 1:
        text = "A row that is added to a product of matrices, such as a bias, counts as part of it."
        return Fact(_TOPIC, text, {"reason": "bias"})
    if len(members) - len(casts) == 1:
        return _casts(len([name for name in casts if name in view.loads]), len(casts))
    return Fact(
        _TOPIC,
        "The light operators that make the gradient of one operator count as one.",
        {"reason": "parts"},
    )


def _partner(view: DataflowView, name: str) -> str | None:
    """Return the operator that a cast belongs to, which only kernels of the host need."""
    return view.rounds.get(name) or view.loads.get(name)


def _casts(loads: int, all_of_them: int) -> Fact:
    """Say why casts are with an operator, so many of which round what comes from memory."""
    made = "A cast to fewer bits belongs to what makes its input: a device rounds as it writes."
    read = (
        "A cast to fewer bits of what comes from memory belongs to what reads it first: a device "
        "rounds as it reads."
    )
    told = [text for text, count in ((made, all_of_them - loads), (read, loads)) if count]
    return Fact(_TOPIC, " ".join(told), {"reason": "cast"})


class _Grown:
    """A group that grew along the dataflow: whom the operator reads from, and whom it joined."""

    def __init__(self, rebuilt: Rebuilt, stage: PlannedStage, place: OperatorPlace) -> None:
        self._rebuilt = rebuilt
        self._view = stage.view
        self._stage = stage
        self._op = place.operator.name
        groups = stage.fusion.groups
        self._of = {op: number for number, group in enumerate(groups) for op in group.ops}
        self._mine = self._of[self._op]
        self._limits = limits_of(rebuilt.arch)
        self._values = value_use(self._view, self._limits)

    def facts(self) -> Iterator[Fact]:
        """Yield what it reads from its own group, and why it did not join the others."""
        rounded = self._view.rounds.get(self._op)
        if rounded is not None and self._of[rounded] == self._mine:
            yield _casts(0, 1)
            return
        read: dict[int, int] = {}
        for maker, crossing in given(self._view.placed, self._op):
            group = self._of[maker]
            read[group] = read.get(group, 0) + crossing.nbytes
        if not read:
            yield Fact(
                _TOPIC,
                "It reads from no operator of its stage, so it could join none and began a group.",
                {"reason": "first"},
            )
            return
        total = sum(read.values())
        for group in sorted(read, key=lambda group: -read[group]):
            name = self._stage.fusion.groups[group].name
            nbytes = read[group]
            part = f"Of the {human_bytes(total)} that it reads from operators"
            if group == self._mine:
                yield Fact(
                    _TOPIC,
                    f"{part} {human_bytes(nbytes)} come from this group: an operator joins the one "
                    "that it reads most from and can join.",
                    {"reason": "joined", "bytes": nbytes, "bytes_read": total},
                )
                return
            yield self._refused(
                group, f"{part} {human_bytes(nbytes)} come from the group {quoted(name)}"
            )

    def _refused(self, group: int, text: str) -> Fact:
        """Say why the operator's group and another one are two."""
        groups = self._stage.fusion.groups
        ops = (*groups[group].ops, *groups[self._mine].ops)
        name = groups[group].name
        heavy = [
            op for op in ops if is_anchor(self._view.ops[op].domain, self._view.ops[op].op_type)
        ]
        if len(heavy) > 1:
            return Fact(
                _TOPIC,
                f"{text}, but together they have {len(heavy)} operators of heavy arithmetic, and a "
                "group has one at most.",
                {"reason": "heavy", "group": name, "heavy": len(heavy), "limit": 1},
            )
        if len(ops) > MAX_OPS:
            return Fact(
                _TOPIC,
                f"{text}, but together they have {len(ops)} operators, {len(ops) - MAX_OPS} more "
                f"than the {MAX_OPS} of a group.",
                {"reason": "long", "group": name, "operators": len(ops), "limit": MAX_OPS,
                 "over": len(ops) - MAX_OPS},
            )  # fmt: skip
        use = most_of(self._view, ops, self._values)
        if not use.within(self._limits):
            return Fact(
                _TOPIC,
                f"{text}, but together they may need {over(use, self._limits)}.",
                {"reason": "limit", "group": name, **excess(use, self._limits)},
            )
        if self._wait_for_each_other(group):
            return Fact(
                _TOPIC,
                f"{text}, but a path from one to the other leads through a third group, which "
                "would wait for itself.",
                {"reason": "cycle", "group": name},
            )
        return Fact(
            _TOPIC,
            f"{text}, and it did not join that; groups have grown since, and the file does not say "
            "what was in the way then.",
            {"reason": "unknown", "group": name},
        )

    def _wait_for_each_other(self, group: int) -> bool:
        """Tell whether a path leaves two groups and comes back."""
        view = self._view
        graph: nx.DiGraph[int] = nx.DiGraph(
            contracted(view.placed, [g.ops for g in self._stage.fusion.groups], view.sizes).edges
        )
        graph.remove_edges_from([(group, self._mine), (self._mine, group)])
        return any(
            a in graph and b in graph and nx.has_path(graph, a, b)
            for a, b in ((group, self._mine), (self._mine, group))
        )


def _formulations(rebuilt: Rebuilt, op: str) -> Iterator[Fact]:
    """Yield what was chosen for the operator `op` of the model, and for its gradients."""
    for row in take_formulations({"formulations": option(rebuilt, "formulations")}):
        if op in row["of"]:
            guess = row["by"] == GUESS
            by = "a guess of costs chose" if guess else "a measurement (tuning) chose"
            yield Fact(
                _WRITTEN,
                f"For the {row['operator']} of {quoted(op)} ({row['sizes']}) {by} "
                f"{quoted(row['formulation'])}.",
                {"operator": row["operator"], "formulation": row["formulation"], "by": row["by"]},
            )
