"""Fit the constants of built-in architectures to measurements: `python -m benchmarks.device_fit`.

Each model is planned once; its plan is then estimated with many constants, by the estimates of the
compiler. The mean share by which they differ from what was measured is made small, one constant
after the other, in steps that get finer. That is done once for all rows that fit, and once for each
fold without its rows. The first goes into the architecture's file, all into `device_fits.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import sambac.arch
from benchmarks.device_points import Point, example, options, read_points
from sambac.pipeline import lower_model
from sambac.planning.estimate import estimate
from sambac.planning.plans import ProgramPlan
from sambac.planning.program import plan_program

FITS = Path(__file__).with_name("device_fits.json")
_DATA = Path(sambac.arch.__file__).parent / "data"

Constants = Mapping[str, float]
FITTED: Mapping[str, tuple[str, ...]] = {
    "sn10": ("compute_efficiency", "launch", "stream_bandwidth"),
    "sn30": ("compute_efficiency", "stream_bandwidth", "fused_streams"),
    "sn40l": ("link_latency",),
}
"""The constants that are fitted, by architecture; all levels share them."""
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
    step = _steps_with({point: planned(point) for point in points})
    first = described(name)
    folds = ["all", *sorted({point.fold for point in points})]
    return {fold: _fold(fold, points, step, first) for fold in folds}


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


def _steps_with(plans: Mapping[Point, ProgramPlan]) -> Callable[[Point, Constants], float]:
    """Return a function from a point and constants to seconds, which keeps what it finds."""
    known: dict[object, float] = {}

    def step(point: Point, constants: Constants) -> float:
        key = (point, *constants.values())
        if key not in known:
            known[key] = seconds(point, plans[point], constants)
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

    One at a time is multiplied or divided by a step, as long as that helps; then comes the next
    step. A constant that is a share stays at most 1.
    """
    best, least = dict(first), error(first)
    for step in steps:
        better = True
        while better:
            better = False
            for key in best:
                for factor in (step, 1 / step):
                    value = best[key] * factor
                    trial = {**best, key: min(value, 1.0) if key in _SHARES else value}
                    if (found := error(trial)) < least - 1e-9:
                        best, least, better = trial, found, True
    return best, least


def seconds(point: Point, plan: ProgramPlan, constants: Constants) -> float:
    """Return what the first graph of a plan takes on the point's device with these constants."""
    arch = sambac.arch.parse_arch(with_constants(_text(point.arch), constants), point.arch)
    device = sambac.arch.sized(arch, point.tiles, point.chips or 1)
    graph = plan.graphs[0]
    costs = iter(estimate(replace(plan, graphs=(graph,)), device).sections)
    stages = [stage.sections for stage in graph.stages]
    latency = [[next(costs).estimate.latency for _ in stage.sections] for stage in stages]
    return sum(own[s] for stage, own in zip(stages, latency, strict=True) for s in stage.schedule)


def described(name: str) -> dict[str, float]:
    """Return what the file of an architecture says of the constants that are fitted."""
    tables = tomllib.loads(_text(name))
    return {key: tables[key]["value"] for key in FITTED[name]}


def _text(name: str) -> str:
    return (_DATA / f"{name}.toml").read_text("utf-8")


if __name__ == "__main__":
    main()
