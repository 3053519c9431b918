"""The independent check of a section plan and its live sets. It shares no code with the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from pef import dtypes
from pef.program import SectionType
from pef.wording import larger_than_chip
from sambac.arch import Arch

from .plans import FusionPlan, LiveSets, SectionPlan
from .view import DataflowView, OpFacts, ValueRole

_HALVES = frozenset(dtypes.BY_NAME[name].number for name in ("bfloat16", "float16"))


def check_sections(
    view: DataflowView,
    fusion: FusionPlan,
    plan: SectionPlan,
    live_sets: Sequence[LiveSets],
    arch: Arch | None,
) -> list[str]:
    """Return what is wrong with `plan` and `live_sets`, nothing if they are right.

    Sections hold every group exactly once, have distinct names and one type each, and run in an
    order in which everything is written before it is read. Live sets are what a section must take
    from and leave to others, no more and no less. A section that the chip does not hold must be
    named in a warning; an `arch` of None is a chip without limits.
    """
    problems = [*_covering(fusion, plan), *_schedule(plan), *_counted(plan, live_sets)]
    if problems:
        return problems
    problems += _types(view, fusion, plan)
    problems += _members(view, fusion, plan, live_sets)
    problems += _crossings(view, plan, live_sets)
    problems += _flow(view, plan, live_sets)
    problems += _traffic(view, plan, live_sets)
    return problems if arch is None else problems + _capacity(view, plan, live_sets, arch)


def _covering(fusion: FusionPlan, plan: SectionPlan) -> list[str]:
    counts = Counter(group for section in plan.sections for group in section.groups)
    problems = [
        f"group {group.name!r} is in {counts[index]} sections, expected 1"
        for index, group in enumerate(fusion.groups)
        if counts[index] != 1
    ]
    problems += [f"there is no group {index}" for index in counts if index >= len(fusion.groups)]
    names = Counter(section.name for section in plan.sections)
    problems += [
        f"{count} sections are named {name!r}" for name, count in names.items() if count > 1
    ]
    return problems + [
        f"section {section.name!r} is empty"
        for section in plan.sections
        if not section.groups and section.type is not SectionType.REDUCE
    ]


def _schedule(plan: SectionPlan) -> list[str]:
    if sorted(plan.schedule) == list(range(len(plan.sections))):
        return []
    return ["the schedule does not run every section exactly once"]


def _counted(plan: SectionPlan, live_sets: Sequence[LiveSets]) -> list[str]:
    if len(live_sets) == len(plan.sections):
        return []
    return [f"{len(live_sets)} live_sets for {len(plan.sections)} sections"]


def _types(view: DataflowView, fusion: FusionPlan, plan: SectionPlan) -> list[str]:
    return [
        f"section {section.name!r} is {section.type.name} but holds {op!r}, which is not"
        for section in plan.sections
        for group in section.groups
        for op in fusion.groups[group].ops
        if view.ops[op].section_type is not section.type
    ]


def _members(
    view: DataflowView, fusion: FusionPlan, plan: SectionPlan, live_sets: Sequence[LiveSets]
) -> list[str]:
    """A section runs the operators of its groups and copies of the clones that they need."""
    problems = []
    place = {op: index for index, op in enumerate(view.ops)}
    for section, sets in zip(plan.sections, live_sets, strict=True):
        own = {op for group in section.groups for op in fusion.groups[group].ops}
        kept = {op for op in sets.ops if not view.ops[op].cloned}
        if own != kept:
            problems.append(f"section {section.name!r} does not run what its groups hold")
        if [place[op] for op in sets.ops] != sorted({place[op] for op in sets.ops}):
            problems.append(f"section {section.name!r} lists operators twice or out of order")
        read_inside = {value for op in sets.ops for value in view.ops[op].inputs}
        idle = [
            op
            for op in sets.ops
            if view.ops[op].cloned and not read_inside.intersection(view.ops[op].outputs)
        ]
        problems += [
            f"section {section.name!r} copies {op!r}, which it does not read" for op in idle
        ]
        lacking = {
            view.producer[value]
            for value in read_inside
            if value in view.producer and view.ops[view.producer[value]].cloned
        }.difference(sets.ops)
        problems += [f"section {section.name!r} lacks its copy of {op!r}" for op in sorted(lacking)]
    return problems


def _crossings(view: DataflowView, plan: SectionPlan, live_sets: Sequence[LiveSets]) -> list[str]:
    """Compare live sets with those that the operators of each section imply.

    A REDUCE section has no operators, and what it lists is up to the step: any values.
    """
    problems = []
    taken = [_taken(view, sets) for sets in live_sets]
    needed = set(view.outputs).union(*taken)
    for index, (sets, values) in enumerate(zip(live_sets, taken, strict=True)):
        reduces = plan.sections[index].type is SectionType.REDUCE
        weights = {v for v in values if view.values[v].role is ValueRole.WEIGHT}
        made = {
            value for op in sets.ops if not view.ops[op].cloned for value in view.ops[op].outputs
        }
        parts = (
            ("inputs", sets.live_in, set(sets.live_in) if reduces else values - weights),
            ("weights", sets.weights, weights),
            ("outputs", sets.live_out, made & needed),
        )
        for part, listed, wanted in parts:
            if set(listed) != wanted or len(listed) != len(wanted):
                differing = sorted(set(listed) ^ wanted)[:5]
                problems.append(f"section {index} has wrong {part}, see {differing}")
    return problems


def _taken(view: DataflowView, sets: LiveSets) -> set[str]:
    members = set(sets.ops)
    return {
        value
        for op in sets.ops
        for value in view.ops[op].inputs
        if view.producer.get(value) not in members
    }


def _flow(view: DataflowView, plan: SectionPlan, live_sets: Sequence[LiveSets]) -> list[str]:
    """Run the schedule: every input is there when it is read, every model output at the end."""
    written = set(view.inputs)
    problems = []
    for index in plan.schedule:
        missing = [value for value in live_sets[index].live_in if value not in written]
        name = plan.sections[index].name
        problems += [f"section {name!r} reads {v!r} before it is written" for v in missing]
        written.update(live_sets[index].live_out)
    lost = [
        value
        for value in view.outputs
        if value not in written and view.values[value].role is ValueRole.ACTIVATION
    ]
    return problems + [f"no section writes the model output {value!r}" for value in lost]


def _traffic(view: DataflowView, plan: SectionPlan, live_sets: Sequence[LiveSets]) -> list[str]:
    """Count what crosses from the live_sets: each read from a section, and each write for one."""
    crossing = Counter(
        value
        for sets in live_sets
        for value in sets.live_in
        if view.values[value].role is ValueRole.ACTIVATION
    )
    crossing.update({value: 1 for value in crossing if value not in view.outputs})
    total = sum(
        count * (view.values[value].device_nbytes or 0) for value, count in crossing.items()
    )
    if total != plan.traffic:
        return [f"the traffic between sections is {total} bytes, the plan says {plan.traffic}"]
    if plan.lower_bound > total:
        return [f"the lower bound of {plan.lower_bound} bytes is above the traffic of {total}"]
    return []


def _capacity(
    view: DataflowView, plan: SectionPlan, live_sets: Sequence[LiveSets], arch: Arch
) -> list[str]:
    """Look for sections that the chip does not hold and nobody was told about."""
    problems = []
    kept = _kept_whole(view) if arch.stage_pmus is not None else set()
    for section, sets in zip(plan.sections, live_sets, strict=True):
        own = [view.ops[op] for op in sets.ops if not view.ops[op].cloned]
        pcus = sum(1 for op in own if op.flops > 0)
        made = {value for op in own for value in op.outputs}
        readers = (op for op in own if not _only_rounds(view, op, made))
        read = {base for op in readers for value in op.inputs for base in _sources(view, value)}
        outside = {*sets.live_in, *sets.weights}
        # A copy's values stay in the operator that reads it, and numbers that are narrowed as they
        # come from memory in whoever reads these.
        read = {v for v in read if v in outside or v in made}
        read -= {op.outputs[0] for op in own if _only_loads(view, op)}
        pmus = sum(
            _memory_units(
                view.values[value].device_nbytes or 0, value in made & read, value in kept, arch
            )
            for value in made | read
        )
        over = pcus > arch.pcus.value or pmus > arch.pmus.value
        if over and not _is_told(section.name, plan.warnings):
            problems.append(f"section {section.name!r} needs {pcus} PCUs and {pmus} PMUs")
    return problems


def _only_rounds(view: DataflowView, op: OpFacts, made: Collection[str]) -> bool:
    """Tell whether `op` gives numbers that are `made` in fewer bits, or 16-bit ones in more."""
    read = _cast(view, op)
    if read is None or read not in made:
        return False
    before, after = _lengths(view, op, read)
    return 0 < after < before or (0 < before < after and view.values[read].dtype in _HALVES)


def _only_loads(view: DataflowView, op: OpFacts) -> bool:
    """Tell whether `op` gives float32 numbers from memory in fewer bits to who reads them."""
    read = _cast(view, op)
    if read is None or read in view.producer or view.values[read].dtype != dtypes.FLOAT:
        return False
    before, after = _lengths(view, op, read)
    return 0 < after < before and bool(view.consumers.get(op.outputs[0]))


def _cast(view: DataflowView, op: OpFacts) -> str | None:
    """Return what `op` reads if it is a cast, behind the clones that copy it; else None."""
    read = {base for value in op.inputs for base in _sources(view, value)}
    cast = (op.op_type, op.domain, len(read)) == ("Cast", "", 1)
    return read.pop() if cast else None


def _lengths(view: DataflowView, op: OpFacts, read: str) -> tuple[int, int]:
    """Return the bytes that a cast reads and makes, 0 for those of open sizes."""
    return view.values[read].nbytes or 0, view.values[op.outputs[0]].nbytes or 0


def _sources(view: DataflowView, value: str) -> set[str]:
    """Follow a value back through the clones that copy it."""
    seen = {value}
    left, found = [value], set()
    while left:
        name = left.pop()
        maker = view.ops.get(view.producer.get(name, ""))
        if maker is None or not maker.cloned:
            found.add(name)
            continue
        left += [each for each in maker.inputs if each not in seen]
        seen.update(maker.inputs)
    return found


def _kept_whole(view: DataflowView) -> set[str]:
    """Return what operators hold back, or what it is copied from."""
    own = (op for op in view.ops.values() if not op.cloned)
    return {base for op in own for value in op.holds for base in _sources(view, value)}


def _memory_units(nbytes: int, stays: bool, whole: bool, arch: Arch) -> int:
    """Return the memory units of a value that `stays` in a section, or is there as a `whole`."""
    unit, all_of_them = int(arch.pmu_bytes.value), int(arch.pmus.value)
    if whole:
        nbytes = min(nbytes, all_of_them * unit // 2)
    elif not stays:
        nbytes = 0
    else:
        nbytes = 2 * nbytes
        if arch.stage_pmus is not None:
            nbytes = min(nbytes, int(arch.stage_pmus.value) * unit)
    return max(1, -(-nbytes // unit))


def _is_told(section: str, warnings: Iterable[str]) -> bool:
    """Tell whether one of `warnings` says that the chip does not hold a section."""
    return any(warning.startswith(larger_than_chip(section)) for warning in warnings)
