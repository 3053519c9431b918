"""Random graphs: every plan passes its checker, and the checkers find every planted fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pef.program import SectionType
from sambac.arch import Arch, Constant, load_arch
from sambac.planning.check_fusion import check_fusion
from sambac.planning.check_sections import check_sections
from sambac.planning.cuts import Line, LineStop, best_cuts
from sambac.planning.estimate import estimate_sections
from sambac.planning.fusion import plan_fusion
from sambac.planning.liveness import live_sets_of
from sambac.planning.plans import FusionPlan, Group, LiveSets, PlannedStage, SectionPlan
from sambac.planning.resources import Limits, limits_of, value_use
from sambac.planning.sections import (
    SectionRequest,
    fewest_sections,
    plan_sections,
    traffic_of,
)
from sambac.planning.view import (
    DataflowView,
    OpFacts,
    ValueFacts,
    ValueRole,
    contracted,
    depth_first,
)

_OP_TYPES = (
    *("Conv", "MatMul", "Relu", "Add", "LayerNormalization", "Reshape", "Softmax", "MaxPool"),
    *("Cast", "Cast"),  # some of them narrow what others make
)
_LEVELS = st.sampled_from(["O0", "O1", "O3"])
# Drawing a graph takes longer than planning it; the first test has the usual number of them.
_FEWER = settings(max_examples=40)


def small_chip(pcus: int = 6, pmus: int = 14, stage: int | None = None) -> Arch:
    """A device so small that graphs of a few operators do not fit it."""
    arch = load_arch("sn40l")
    units = Constant(float(stage), "units", "assumed", "this test") if stage else None
    return replace(
        arch,
        pcus=replace(arch.pcus, value=pcus),
        pmus=replace(arch.pmus, value=pmus),
        pmu_bytes=replace(arch.pmu_bytes, value=64),
        stage_pmus=units,
    )


@st.composite
def views(draw: st.DrawFn, most: int = 24) -> DataflowView:
    """Graphs with clones, weights, several outputs, unknown sizes and several section types."""
    values = {
        name: ValueFacts(name, role, 1, (1,), "tensor(float)", 4)
        for name, role in (("x", ValueRole.INPUT), ("y", ValueRole.INPUT), ("w", ValueRole.WEIGHT))
    }
    ops: dict[str, OpFacts] = {}
    cloned: set[str] = set()
    for index in range(draw(st.integers(0, most))):
        known = list(values)
        near = st.sampled_from(known[-6:])
        inputs = draw(st.lists(st.one_of(near, st.sampled_from(known)), max_size=3, unique=True))
        outputs = tuple(f"v{index}_{k}" for k in range(draw(st.sampled_from([1, 1, 1, 2]))))
        is_cloned = draw(st.integers(0, 5)) == 0
        for name in outputs:
            size = draw(st.sampled_from([None, 0, 4, 32, 64, 100, 500]))
            values[name] = ValueFacts(name, ValueRole.ACTIVATION, 1, (1,), "tensor(float)", size)
        cloned.update(outputs if is_cloned else ())
        ops[f"n{index}"] = OpFacts(
            name=f"n{index}",
            op_type=draw(st.sampled_from(_OP_TYPES)) if inputs else "RandomNormal",
            domain="",
            inputs=tuple(inputs),
            outputs=outputs,
            flops=draw(st.sampled_from([0, 10, 1000])),
            cloned=is_cloned,
            section_type=SectionType.OPT if draw(st.integers(0, 9)) == 0 else SectionType.FWD,
            module=draw(st.sampled_from(["", "a", "b"])),
            part_of=draw(st.sampled_from(["", "a", "b"])),
            holds=tuple(draw(st.lists(st.sampled_from([*inputs, *outputs]), max_size=1))),
        )
    returnable = [name for name in values if name not in cloned]
    returned = draw(st.lists(st.sampled_from(returnable), min_size=1, max_size=4))
    return DataflowView(ops, values, ("x", "y"), tuple(returned))


@given(view=views(), level=_LEVELS, pmus=st.integers(3, 30), stage=st.sampled_from([None, 1, 3]))
def test_plans_pass_their_checkers(
    view: DataflowView, level: str, pmus: int, stage: int | None
) -> None:
    arch = small_chip(pmus=pmus, stage=stage)
    fusion = plan_fusion(view, arch, level)
    assert check_fusion(view, fusion) == []
    plan = plan_sections(view, fusion, arch, SectionRequest(level))
    live_sets = live_sets_of(view, fusion, plan)
    assert check_sections(view, fusion, plan, live_sets, arch) == []
    if not plan.warnings:  # of sections that are larger than the chip
        limits = limits_of(arch)
        assert fewest_sections(view, limits, value_use(view, limits)) <= len(plan.sections)
    homes = dict.fromkeys(view.values, arch.main_memory)
    stage = PlannedStage(view, fusion, plan, live_sets)
    assert len(estimate_sections([stage], arch, homes)) == len(plan.sections)


@_FEWER
@given(view=views(), count=st.integers(1, 12))
def test_a_number_of_sections_is_followed_where_groups_allow(
    view: DataflowView, count: int
) -> None:
    arch = load_arch("sn40l")
    fusion = plan_fusion(view, arch, "O3", at_least=count)
    plan = plan_sections(view, fusion, arch, SectionRequest("O3", count=count))
    assert check_sections(view, fusion, plan, live_sets_of(view, fusion, plan), arch) == []
    if len(plan.sections) != count:
        assert "were asked for" in plan.warnings[0]


@_FEWER
@given(view=views(), level=_LEVELS)
def test_plans_do_not_depend_on_earlier_ones(view: DataflowView, level: str) -> None:
    arch = small_chip()
    first, second = (plan_fusion(view, arch, level) for _ in range(2))
    assert first == second
    wish = SectionRequest(level)
    assert plan_sections(view, first, arch, wish) == plan_sections(view, second, arch, wish)


@_FEWER
@given(views())
def test_the_flow_is_topological_and_complete(view: DataflowView) -> None:
    order = depth_first(view.placed)
    assert sorted(order) == sorted(op.name for op in view.ops.values() if not op.cloned)
    place = {name: at for at, name in enumerate(order)}
    assert all(place[maker] < place[reader] for maker, reader in view.placed.edges)


# Cuts against all cuts


def _feasible(line: Line, begin: int, end: int, limits: Limits) -> bool:
    stops = line.stops[begin:end]
    written = {value for stop in stops for value in stop.writes}
    read = {value for stop in stops for value in stop.reads}
    inside, outside = line.use.inside, line.use.outside
    pmus = sum(inside[v] if v in written & read else outside[v] for v in written | read)
    pcus = sum(stop.pcus for stop in stops)
    alone = end - begin == 1
    return alone or (
        pmus <= limits.pmus and pcus <= limits.pcus and len({stop.kind for stop in stops}) == 1
    )


@_FEWER
@given(
    view=views(most=9),
    cost=st.sampled_from([1, 50, 10_000]),
    pmus=st.integers(3, 20),
    stage=st.sampled_from([None, 3]),
)
def test_cuts_are_the_best_of_all_cuts(
    view: DataflowView, cost: int, pmus: int, stage: int | None
) -> None:
    names = list(view.placed)
    limits = Limits(4, pmus, 64, stage)
    line = Line(
        tuple(
            LineStop(
                view.ops[n].section_type,
                int(view.ops[n].flops > 0),
                view.ops[n].outputs,
                view.reads[n],
            )
            for n in names
        ),
        view.sizes,
        value_use(view, limits),
        frozenset(view.outputs),
    )
    least = None
    for mask in range(1 << max(len(names) - 1, 0)):
        starts = [0, *(i + 1 for i in range(len(names) - 1) if mask >> i & 1)] if names else []
        stretches = list(pairwise([*starts, len(names)]))
        if all(_feasible(line, a, b, limits) for a, b in stretches):
            parts = [names[a:b] for a, b in stretches]
            traffic = traffic_of(view, contracted(view.placed, parts, view.sizes))
            total = traffic + cost * len(stretches)
            least = total if least is None else min(least, total)
    found, starts = best_cuts(line, limits, cost)
    assert found == least
    assert all(_feasible(line, a, b, limits) for a, b in pairwise([*starts, len(names)]))


# Planted faults

Faulty = tuple[FusionPlan, SectionPlan, tuple[LiveSets, ...]]


def _drop_op(fusion: FusionPlan) -> FusionPlan:
    first, *rest = fusion.groups
    return FusionPlan((replace(first, ops=first.ops[1:]), *rest))


def _repeat_op(fusion: FusionPlan) -> FusionPlan:
    return FusionPlan((*fusion.groups, Group("again", fusion.groups[0].ops)))


def _unknown_op(fusion: FusionPlan) -> FusionPlan:
    return FusionPlan((*fusion.groups, Group("new", ("nobody",))))


def _repeat_name(fusion: FusionPlan) -> FusionPlan:
    return FusionPlan((*fusion.groups, Group(fusion.groups[0].name, ())))


@_FEWER
@given(
    view=views(),
    fault=st.sampled_from([_drop_op, _repeat_op, _unknown_op, _repeat_name]),
)
def test_faults_in_fusion_plans_are_found(
    view: DataflowView, fault: Callable[[FusionPlan], FusionPlan]
) -> None:
    fusion = plan_fusion(view, small_chip(), "O3")
    assume(fusion.groups)
    assert check_fusion(view, fault(fusion))


@_FEWER
@given(view=views(), data=st.data())
def test_groups_that_wait_for_each_other_are_found(view: DataflowView, data: st.DataObject) -> None:
    """Merge the two ends of a path of three operators and leave the middle outside."""
    paths = [
        (first, last)
        for middle, last in view.placed.edges
        for first in view.placed.predecessors(middle)
    ]
    assume(paths)
    first, last = data.draw(st.sampled_from(paths))
    order = {name: index for index, name in enumerate(view.ops)}
    pair = Group("pair", tuple(sorted((first, last), key=order.__getitem__)))
    others = [Group(name, (name,)) for name in view.placed if name not in pair.ops]
    problems = check_fusion(view, FusionPlan((pair, *others)))
    assert any("wait for each other" in p or "mixes section types" in p for p in problems)


def _without_first(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(values[1:])


def _lose_input(sets: LiveSets) -> LiveSets:
    return replace(sets, live_in=_without_first(sets.live_in))


def _lose_output(sets: LiveSets) -> LiveSets:
    return replace(sets, live_out=_without_first(sets.live_out))


def _lose_weight(sets: LiveSets) -> LiveSets:
    return replace(sets, weights=_without_first(sets.weights))


def _lose_op(sets: LiveSets) -> LiveSets:
    return replace(sets, ops=_without_first(sets.ops))


def _repeat_input(sets: LiveSets) -> LiveSets:
    return replace(sets, live_in=sets.live_in * 2)


@_FEWER
@given(
    view=views(),
    fault=st.sampled_from([_lose_input, _lose_output, _lose_weight, _lose_op, _repeat_input]),
    data=st.data(),
)
def test_faults_in_live_sets_are_found(
    view: DataflowView, fault: Callable[[LiveSets], LiveSets], data: st.DataObject
) -> None:
    arch = small_chip()
    fusion = plan_fusion(view, arch, "O3")
    plan = plan_sections(view, fusion, arch, SectionRequest("O3"))
    live_sets = live_sets_of(view, fusion, plan)
    places = [index for index, sets in enumerate(live_sets) if fault(sets) != sets]
    assume(places)
    place = data.draw(st.sampled_from(places))
    faulty = [fault(b) if index == place else b for index, b in enumerate(live_sets)]
    assert check_sections(view, fusion, plan, faulty, arch)


def _swap_schedule(plan: SectionPlan) -> SectionPlan:
    return replace(plan, schedule=plan.schedule[:-1])


def _drop_section(plan: SectionPlan) -> SectionPlan:
    return replace(plan, sections=plan.sections[:-1], schedule=plan.schedule[:-1])


def _drop_group(plan: SectionPlan) -> SectionPlan:
    *rest, last = plan.sections
    return replace(plan, sections=(*rest, replace(last, groups=last.groups[:-1])))


def _wrong_type(plan: SectionPlan) -> SectionPlan:
    *rest, last = plan.sections
    return replace(plan, sections=(*rest, replace(last, type=SectionType.REDUCE)))


def _wrong_traffic(plan: SectionPlan) -> SectionPlan:
    return replace(plan, traffic=plan.traffic + 1)


def _wrong_bound(plan: SectionPlan) -> SectionPlan:
    return replace(plan, lower_bound=plan.traffic + 1)


@_FEWER
@given(
    view=views(),
    fault=st.sampled_from(
        [_swap_schedule, _drop_section, _drop_group, _wrong_type, _wrong_traffic, _wrong_bound]
    ),
)
def test_faults_in_section_plans_are_found(
    view: DataflowView, fault: Callable[[SectionPlan], SectionPlan]
) -> None:
    arch = small_chip()
    fusion = plan_fusion(view, arch, "O3")
    plan = plan_sections(view, fusion, arch, SectionRequest("O3"))
    assume(plan.sections)
    faulty = fault(plan)
    live_sets = live_sets_of(view, fusion, faulty)
    assert check_sections(view, fusion, faulty, live_sets, arch)


@_FEWER
@given(views())
def test_a_reader_before_its_writer_is_found(view: DataflowView) -> None:
    arch = small_chip()
    fusion = plan_fusion(view, arch, "O0")
    plan = plan_sections(view, fusion, arch, SectionRequest("O0"))
    live_sets = live_sets_of(view, fusion, plan)
    made = {value for sets in live_sets for value in sets.live_out}
    assume(any(made.intersection(sets.live_in) for sets in live_sets))
    backwards = replace(plan, schedule=plan.schedule[::-1])
    problems = check_sections(view, fusion, backwards, live_sets, arch)
    assert any("before it is written" in problem for problem in problems)


@_FEWER
@given(views())
def test_a_silent_section_larger_than_the_chip_is_found(view: DataflowView) -> None:
    large, tiny = load_arch("sn40l"), small_chip(pcus=1, pmus=1)
    fusion = plan_fusion(view, large, "O3")
    plan = plan_sections(view, fusion, large, SectionRequest("O3"))
    assume(len(view.ops) > 2 and any(section.groups for section in plan.sections))
    live_sets = live_sets_of(view, fusion, plan)
    assume(any(len(s.live_in) + len(s.weights) + len(s.live_out) > 1 for s in live_sets))
    problems = check_sections(view, fusion, plan, live_sets, tiny)
    assert any("PMUs" in problem for problem in problems)
