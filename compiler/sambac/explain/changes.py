"""What would help: the time of a program estimated again with one thing changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import get_args

from pef import dtypes
from pef.program import SectionType
from pef.text import plural
from sambac.arch import Arch, Constant, of_chips
from sambac.options import Level
from sambac.planning.plans import PlannedStage, SectionCost
from sambac.planning.view import OpFacts, ValueFacts, ValueRole
from sambac.reconstruct.rebuilt import Rebuilt

from .cuts import option
from .facts import Fact, seconds, share
from .recut import cut_anew, fused_anew

_TWICE = 2
_LEAST = 0.001
"""The part of the time that a change has to save to be worth a sentence."""
_WITH_BATCH = frozenset({SectionType.FWD, SectionType.BCKWD})


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One thing that is different, and the seconds that the same calls then take.

    `per` is the work that is done then, as a multiple of what was done before.
    """

    what: str
    how: str
    seconds: float
    sections: int | None = None
    per: int = 1

    @property
    def each(self) -> float:
        """The seconds for as much work as before."""
        return self.seconds / self.per


def helping(rebuilt: Rebuilt, calls: Sequence[int], before: float) -> list[WhatIf]:
    """Return what makes these `calls` of sections faster than `before`, what helps most first."""
    found = [*hardware(rebuilt, calls), *twice_the_batch(rebuilt, calls), *_planned(rebuilt, calls)]
    return worthwhile(found, before)


def worthwhile(found: Iterable[WhatIf], before: float) -> list[WhatIf]:
    """Return the changes that save a part that counts, what helps most first."""
    better = [change for change in found if change.each < before * (1 - _LEAST)]
    return sorted(better, key=lambda change: change.each)


def change_fact(topic: str, change: WhatIf, before: float) -> Fact:
    """Return the sentence on one change."""
    saved = before - change.each
    count = f", in {plural(change.sections, 'section')}" if change.sections is not None else ""
    time = (
        f"{seconds(change.seconds)} instead of {seconds(before)}{count}"
        if change.per == 1
        else f"{seconds(change.seconds)} instead of {seconds(change.per * before)}{count}"
    )
    numbers: dict[str, int | float | str] = {
        "change": change.what, "before": before, "seconds": change.seconds, "per": change.per,
        "saved_share": saved / before if before else 0.0,
    }  # fmt: skip
    if change.sections is not None:
        numbers["sections"] = change.sections
    of = "less" if change.per == 1 else "less for each sample"
    text = f"{change.what}: {share(saved, before)} {of}, {time} ({change.how})."
    return Fact(topic, text, numbers)


def hardware(rebuilt: Rebuilt, calls: Sequence[int]) -> Iterator[WhatIf]:
    """Yield changes of the device's speeds, with the plan as it is."""
    for what, how, arch in _faster(rebuilt.arch):
        yield WhatIf(what, how, _time(rebuilt, rebuilt.costs(arch), calls))
    if (near := everything_near(rebuilt, calls)) is not None:
        yield near


def everything_near(rebuilt: Rebuilt, calls: Sequence[int]) -> WhatIf | None:
    """Return what `calls` would take with all in the main memory; None if all lies there."""
    main = rebuilt.arch.main_memory
    if all(home is main for home in rebuilt.homes.values()):
        return None
    room = f"room for it: {main.name.lower()}_capacity of the device, or less to keep"
    return WhatIf(
        f"Everything in {main.name}",
        room if spills(rebuilt) else "options that want nothing elsewhere",
        _time(rebuilt, rebuilt.costs(homes=dict.fromkeys(rebuilt.homes, main)), calls),
    )


def spills(rebuilt: Rebuilt) -> bool:
    """Tell whether something lies elsewhere because the main memory is full."""
    return any(place.found_no_room for place in rebuilt.program.allocations)


def _faster(arch: Arch) -> Iterator[tuple[str, str, Arch]]:
    """Yield devices of which one number is better, each with what and how that is."""

    def twice(constant: Constant) -> Constant:
        return replace(constant, value=_TWICE * constant.value)

    yield (
        "Launches in half the time",
        "launch of the device",
        replace(arch, launch=replace(arch.launch, value=arch.launch.value / _TWICE)),
    )
    yield (
        "Twice the arithmetic",
        "peak_flops of the device",
        replace(arch, peak_flops=twice(arch.peak_flops)),
    )
    for kind, tier in arch.tiers.items():
        if tier.bandwidth is not None:
            faster = {kind: replace(tier, bandwidth=twice(tier.bandwidth))}
            yield (
                f"{kind.name} of twice the bandwidth",
                f"{kind.name.lower()}_bandwidth of the device",
                replace(arch, tiers=arch.tiers | faster),
            )
    if arch.stream_bandwidth is not None:
        yield (
            "Streams of twice the bandwidth",
            "stream_bandwidth of the device",
            replace(arch, stream_bandwidth=twice(arch.stream_bandwidth)),
        )
    if arch.chips > 1 and arch.link_latency is not None:
        less = replace(arch.link_latency, value=arch.link_latency.value / _TWICE)
        bandwidth = arch.link_bandwidth and twice(arch.link_bandwidth)
        yield (
            "Links twice as fast",
            "link_latency and link_bandwidth of the device"
            if bandwidth
            else "link_latency of the device; no link_bandwidth is known",
            replace(arch, link_latency=less, link_bandwidth=bandwidth),
        )


def twice_the_batch(rebuilt: Rebuilt, calls: Sequence[int]) -> Iterator[WhatIf]:
    """Yield twice the batch: all doubles but parameters, their gradients and states."""
    program = rebuilt.program
    fixed = {
        symbol.name
        for symbol in program.symbols
        if symbol.parameter is not None or symbol.name in rebuilt.plans.persistent.states
    }
    doubled = [_doubled(stage.plan, fixed, rebuilt) for stage in rebuilt.stages]
    what, how = "Twice the batch", "compile it for a larger batch"
    level = _level(rebuilt)
    if level is not None and option(rebuilt, "mapping") != "spatial":
        took, count = _cut_anew(rebuilt, calls, doubled, (rebuilt.arch, level))
        yield WhatIf(what, f"{how}; planned anew", took, count, _TWICE)
    else:
        took = _time(rebuilt, rebuilt.costs(stages=doubled), calls)
        yield WhatIf(what, f"{how}; here with the same sections", took, per=_TWICE)


def _doubled(stage: PlannedStage, fixed: set[str], rebuilt: Rebuilt) -> PlannedStage:
    if stage.sections.sections[0].type not in _WITH_BATCH:
        return stage
    symbol = rebuilt.plans.persistent.symbol
    same = {
        name
        for name, facts in stage.view.values.items()
        if facts.role is ValueRole.WEIGHT or symbol(name) in fixed
    }
    ops: dict[str, OpFacts] = {}
    # In topological order, so that what is made of weights alone is as large as they are.
    for name, op in stage.view.ops.items():
        of_weights = bool(op.inputs) and same.issuperset(op.inputs)
        same.update(op.outputs if of_weights else ())
        ops[name] = op if of_weights else replace(op, flops=_TWICE * op.flops)
    values = {
        name: facts if name in same else _larger_value(facts)
        for name, facts in stage.view.values.items()
    }
    # Of the matrices of a product another one may be the smallest now.
    ops = {name: replace(op, holds=_smallest(op, values)) for name, op in ops.items()}
    return replace(stage, view=replace(stage.view, ops=ops, values=values))


def _larger_value(facts: ValueFacts) -> ValueFacts:
    """Return a value of twice the rows, open dimensions counted as 1; a scalar stays."""
    if not facts.shape:
        return facts
    first, *others = (size if isinstance(size, int) else 1 for size in facts.shape)
    shape = (_TWICE * first, *others)
    return replace(facts, shape=shape, nbytes=dtypes.static_nbytes(facts.dtype, shape))


def _smallest(op: OpFacts, values: Mapping[str, ValueFacts]) -> tuple[str, ...]:
    """Return what `op` keeps on chip of what it can keep."""
    if not op.holds or not op.keepable:
        return op.holds

    def elements(name: str) -> int:
        return prod(size if isinstance(size, int) else 1 for size in values[name].shape or ())

    return (min(op.keepable, key=elements),)


def _level(rebuilt: Rebuilt) -> Level | None:
    """Return the level at which the planner decided on sections; None if somebody else did."""
    level = option(rebuilt, "level")
    known = next((known for known in get_args(Level) if known == level), None)
    return known if option(rebuilt, "sections") is None else None


def _planned(rebuilt: Rebuilt, calls: Sequence[int]) -> Iterator[WhatIf]:
    """Yield what makes the planner cut otherwise: another level, a larger chip, one alone."""
    level = _level(rebuilt)
    if level is None:
        return
    plans = [stage.plan for stage in rebuilt.stages]
    if (alone := _one_chip(rebuilt)) is not None:
        took, count = _cut_anew(rebuilt, calls, plans, (alone, level))
        yield WhatIf("One chip alone", "without --n-chips; planned anew", took, count)
    same = [("Level O3", "sambac compile -O3", rebuilt.arch)]
    for what, how, arch in _larger(rebuilt.arch) if level == "O3" else same:
        took, count = _planned_anew(rebuilt, calls, plans, arch)
        yield WhatIf(what, f"{how}; planned anew", took, count)


def _one_chip(rebuilt: Rebuilt) -> Arch | None:
    """Return one chip of several, if it has room for what lies in each of their memories."""
    alone = of_chips(rebuilt.arch, 1)
    used = {region.kind: region.used for region in rebuilt.program.regions}
    fits = all(used.get(kind, 0) <= there for kind, there in alone.capacities.items())
    several = rebuilt.arch.chips > 1 and option(rebuilt, "mapping") != "spatial"
    return alone if several and fits else None


def _larger(arch: Arch) -> Iterator[tuple[str, str, Arch]]:
    """Yield chips of more units, each with what and how that is."""
    pmus = replace(arch.pmus, value=_TWICE * arch.pmus.value)
    pcus = replace(arch.pcus, value=_TWICE * arch.pcus.value)
    peak = replace(arch.peak_flops, value=_TWICE * arch.peak_flops.value)
    yield "Twice the memory units", "pmus of the device", replace(arch, pmus=pmus)
    whole = replace(arch, pmus=pmus, pcus=pcus, peak_flops=peak)
    yield "Twice the chip", "pcus, pmus and peak_flops of the device", whole


def _planned_anew(
    rebuilt: Rebuilt, calls: Sequence[int], plans: Sequence[PlannedStage], arch: Arch
) -> tuple[float, int]:
    """Return the seconds and sections of the graphs of `calls`, with `plans` fused anew at O3."""
    return _took(rebuilt, [fused_anew(plan, arch) for plan in _called(rebuilt, calls, plans)], arch)


def _cut_anew(
    rebuilt: Rebuilt,
    calls: Sequence[int],
    plans: Sequence[PlannedStage],
    how: tuple[Arch, Level],
) -> tuple[float, int]:
    """Return the seconds and sections of the graphs of `calls`, with `plans` cut as `how` says."""
    arch, level = how
    cut = [cut_anew(plan, arch, level) for plan in _called(rebuilt, calls, plans)]
    return _took(rebuilt, cut, arch)


def _called(
    rebuilt: Rebuilt, calls: Sequence[int], plans: Sequence[PlannedStage]
) -> list[PlannedStage]:
    """Return those of `plans`, one for each stage, that `calls` touch."""
    pairs = zip(rebuilt.stages, plans, strict=True)
    return [plan for stage, plan in pairs if not set(calls).isdisjoint(stage.numbers)]


def _took(rebuilt: Rebuilt, plans: Sequence[PlannedStage], arch: Arch) -> tuple[float, int]:
    took = sum(cost.estimate.latency for cost in rebuilt.costs(arch, stages=plans))
    return took, sum(len(plan.sections.sections) for plan in plans)


def _time(rebuilt: Rebuilt, costs: Sequence[SectionCost], calls: Sequence[int]) -> float:
    """Return the seconds of `calls`, section numbers, by costs of all sections."""
    numbers = [number for stage in rebuilt.stages for number in stage.numbers]
    by_number = {n: cost.estimate.latency for n, cost in zip(numbers, costs, strict=True)}
    return sum(by_number[call] for call in calls)
