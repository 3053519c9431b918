"""Fit the constants of built-in architectures to measurements: `python -m benchmarks.device_fit`.

Each model is planned once. Of its sections those that differ in what they ask of a device are then
estimated with many constants, by the estimates of the compiler. The mean share by which they differ
from what was measured is made small, constants alone and in pairs, in steps that get finer. That is
done once for all rows that fit, and once for each fold without its rows. The first goes into the
architecture's file, all into `device_fits.json`.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import isclose
from pathlib import Path

import sambac.arch
from benchmarks.device_points import Point, example, options, read_points
from pef.symbols import RegionKind
from sambac.arch import Arch
from sambac.pipeline import lower_model
from sambac.planning.estimate import estimate, estimate_sections, homes_of
from sambac.planning.plans import PlannedStage, ProgramPlan
from sambac.planning.program import plan_program
from sambac.planning.resources import Demands

FITS = Path(__file__).with_name("device_fits.json")
_DATA = Path(sambac.arch.__file__).parent / "data"

Constants = Mapping[str, float]
FITTED: Mapping[str, Constants] = {
    "sn10": {"compute_efficiency": 0.1, "launch": 3.5e-5, "stream_bandwidth": 2.6e10},
    "sn30": {"compute_efficiency": 0.13, "stream_bandwidth": 6e10},
    "sn40l": {"link_latency": 3e-6},
}
"""The constants that are fitted, by architecture, each with where the search begins.

All levels share them. What the files say plays no part, so that each fit gives the same.
"""
_STEPS = (1.5, 1.2, 1.1, 1.05, 1.02)
_SHARES = frozenset({"compute_efficiency"})


def main() -> None:
    """Fit the named architectures, or all, and write what came out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device_fit", description=__doc__)
    parser.add_argument("archs", nargs="*", metavar="ARCH", help=", ".join(FITTED))
    names = parser.parse_args().archs or list(FITTED)
    if unknown := sorted(set(names) - set(FITTED)):
        parser.error(f"nothing is fitted for {', '.join(unknown)}; there are {', '.join(FITTED)}")
    found = json.loads(FITS.read_text("utf-8")) if FITS.exists() else {}
    for name in names:
        found[name] = fit(name)
        text = with_constants((_DATA / f"{name}.toml").read_text("utf-8"), found[name]["all"])
        (_DATA / f"{name}.toml").write_text(text, encoding="utf-8")
        FITS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def fit(name: str) -> dict[str, dict[str, float]]:
    """Return the constants of an architecture: for all rows, and without each fold."""
    points = [point for point in read_points() if point.arch == name and point.fits]
    plans = {point: planned(point) for point in points}
    step = _steps_with({point: distinct(point, plan) for point, plan in plans.items()})
    first = FITTED[name]
    folds = ["all", *sorted({point.fold for point in points})]
    found = {fold: _fold(fold, points, step, first) for fold in folds}
    for point, plan in plans.items():
        require_same(point, step(point, found["all"]), seconds(point, plan, found["all"]))
    return found


def require_same(point: Point, fitted: float, whole: float) -> None:
    """Raise `ValueError` unless the whole plan takes as long as its distinct sections say."""
    if not isclose(fitted, whole, rel_tol=1e-9):
        raise ValueError(f"{point.name}: the fit takes {fitted} s for a plan of {whole} s")


def with_constants(text: str, constants: Constants) -> str:
    """Return the description of an architecture with other values of some constants."""
    for key, value in constants.items():
        text, count = re.subn(
            rf"(?m)^(\[{key}\]\nvalue = ).*$", rf"\g<1>{value:.4g}", text, count=1
        )
        if not count:
            raise ValueError(f"the description has no table [{key}] that begins with its value")
    return text


def planned(point: Point) -> ProgramPlan:
    """Return the plans of a point's model, for its architecture as it is."""
    module, inputs = example(point)
    chosen = options(point)
    _, lowered = lower_model(module, chosen, print, inputs)
    print(point.set, point.name)
    return plan_program(lowered, chosen, lambda _: None)


@dataclass(frozen=True)
class Distinct:
    """The sections of a step of which no two ask the same of a device, and how often each runs."""

    stages: tuple[PlannedStage, ...]
    runs: tuple[int, ...]
    homes: Mapping[str, RegionKind]
    states: Sequence[str]

    def seconds(self, arch: Arch) -> float:
        """Return what all runs take."""
        costs = estimate_sections(self.stages, arch, self.homes, self.states)
        return sum(n * c.estimate.latency for n, c in zip(self.runs, costs, strict=True))


def distinct(point: Point, plan: ProgramPlan) -> Distinct:
    """Return the distinct sections of the first graph of a plan."""
    arch, homes = device(point, FITTED[point.arch]), homes_of(plan)
    stages, runs = [], []
    for stage in plan.graphs[0].stages:
        first: dict[Hashable, int] = {}
        count: Counter[int] = Counter()
        demands = Demands(stage.view, arch, plan.persistent.states)
        for at in stage.sections.schedule:
            count[first.setdefault(_asked(stage, at, demands, homes), at)] += 1
        kept = sorted(count)
        stages.append(_with_sections(stage, kept))
        runs += [count[at] for at in kept]
    return Distinct(tuple(stages), tuple(runs), homes, plan.persistent.states)


def _asked(
    stage: PlannedStage, at: int, demands: Demands, homes: Mapping[str, RegionKind]
) -> Hashable:
    """Return what a section asks of a device, whatever its values and operators are called."""
    section, ops = stage.sections.sections[at], stage.view.ops
    demand = demands.of(stage.fusion.ops_of(section.groups), section, stage.live_sets[at])
    moved = (
        tuple(sorted((homes[name], nbytes) for name, nbytes in sizes.items()))
        for sizes in (demand.held, demand.streams)
    )
    work = tuple(sorted((ops[op].flops, pcus) for op, pcus in demand.shares.items()))
    times = (demand.each, demand.launch, demand.fill, demand.link)
    return (section.type, times, work, *moved)


def _with_sections(stage: PlannedStage, kept: Sequence[int]) -> PlannedStage:
    """Return a stage with some of its sections alone."""
    sections = tuple(stage.sections.sections[at] for at in kept)
    plan = replace(stage.sections, sections=sections, schedule=tuple(range(len(kept))))
    return replace(stage, sections=plan, live_sets=tuple(stage.live_sets[at] for at in kept))


def _steps_with(plans: Mapping[Point, Distinct]) -> Callable[[Point, Constants], float]:
    """Return a function from a point and constants to seconds, which keeps what it finds."""
    known: dict[object, float] = {}

    def step(point: Point, constants: Constants) -> float:
        key = (point, *constants.values())
        if key not in known:
            known[key] = plans[point].seconds(device(point, constants))
        return known[key]

    return step


def _fold(
    fold: str,
    points: Sequence[Point],
    step: Callable[[Point, Constants], float],
    first: Constants,
) -> dict[str, float]:
    mine = [point for point in points if point.fold != fold]
    sets = sorted({point.set for point in mine})

    def error(constants: Constants) -> float:
        """The mean over sets of the mean error, so that no set counts for its many rows."""
        errors: dict[str, list[float]] = {each: [] for each in sets}
        for point in mine:
            errors[point.set].append(abs(step(point, constants) / point.seconds - 1))
        return sum(sum(each) / len(each) for each in errors.values()) / len(errors)

    best, least = descend(error, first)
    print(f"{fold}: {best}, mean error {100 * least:.1f} %")
    return best


def descend(
    error: Callable[[Constants], float], first: Constants, steps: Sequence[float] = _STEPS
) -> tuple[dict[str, float], float]:
    """Return the constants near `first` with the least error, and the error.

    One is multiplied or divided by a step, or two are together or against each other (where one
    makes up for the other, neither helps alone), as long as that helps; then comes the next step. A
    constant that is a share stays at most 1.
    """
    best, least = dict(first), error(first)
    pairs = [{a: 1, b: way} for a, b in combinations(best, 2) for way in (1, -1)]
    ways = [*({key: 1} for key in best), *pairs]
    for step in steps:
        better = True
        while better:
            better = False
            for way, factor in product(ways, (step, 1 / step)):
                trial = {key: _moved(key, best[key], factor ** way.get(key, 0)) for key in best}
                if (found := error(trial)) < least - 1e-9:
                    best, least, better = trial, found, True
    return best, least


def _moved(key: str, value: float, factor: float) -> float:
    return min(value * factor, 1.0) if key in _SHARES else value * factor


def seconds(point: Point, plan: ProgramPlan, constants: Constants) -> float:
    """Return what the first graph of a plan takes on the point's device with these constants."""
    graph = plan.graphs[0]
    costs = iter(estimate(replace(plan, graphs=(graph,)), device(point, constants)).sections)
    stages = [stage.sections for stage in graph.stages]
    latency = [[next(costs).estimate.latency for _ in stage.sections] for stage in stages]
    return sum(own[s] for stage, own in zip(stages, latency, strict=True) for s in stage.schedule)


def device(point: Point, constants: Constants) -> Arch:
    """Return the device of a point with other values of some constants."""
    arch = sambac.arch.parse_arch(with_constants(_text(point.arch), constants), point.arch)
    return sambac.arch.sized(arch, point.tiles, point.chips or 1)


def _text(name: str) -> str:
    return (_DATA / f"{name}.toml").read_text("utf-8")


if __name__ == "__main__":
    main()
