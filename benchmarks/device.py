"""Predictions for devices beside what was measured on them: `make bench-device`.

Each configuration is compiled, and the latencies that its PEF states are added up over the schedule
of the graph that was measured. What is left out of a fit is predicted with the constants that the
fit to the others gave: `device_fits.json` has them, and `device_fit.py` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from benchmarks.device_fit import FITS, with_constants
from benchmarks.device_points import Point, Prediction, predict, read_points
from benchmarks.report import Cell, Report
from benchmarks.zoo import FOLDER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LIMITS = {"GPT-2 step O3": 10.0, "GPT-2 step O0": 20.0, "decode": 5.0, "GEMM": 20.0}
"""The mean error, in percent, that a set of rows that were left out may have."""
_SECTIONS_LIMIT = 1.25
_WORKERS = 2


@dataclass(frozen=True)
class Compared:
    """A configuration with what is predicted, by constants that were fitted without its fold."""

    point: Point
    modelled: Prediction

    @property
    def error(self) -> float:
        """By how much the prediction is off, as a share of what was measured."""
        return self.modelled.seconds / self.point.seconds - 1


def run() -> Report:
    """Compile everything, compare, and put the sets of rows together."""
    points = read_points()
    with ProcessPoolExecutor(max_workers=_WORKERS) as workers:
        predictions = workers.map(_predicted, points)
        found = [Compared(*pair) for pair in zip(points, predictions, strict=True)]
    sets = {each.point.set: [c for c in found if c.point.set == each.point.set] for each in found}
    return Report(
        name="device",
        question="How far is the modelled device from measured ones?",
        method=(
            "Modelled times are sums of what PEFs state, compiled here from shapes alone. Each row "
            "is predicted by constants that were fitted without the rows of the same hidden size, "
            "model or half; rows of sets without a limit were in no fit at all. Modelled sections "
            "include those of the optimizer. What was measured, others measured: "
            "`device_points.csv` names them, and what is not known of how they did."
        ),
        columns=[
            "configuration", "set", "measured, ms", "modelled, ms", "error, %", "sections",
            "measured sections",
        ],
        rows=[_row(each) for each in found],
        summary=[_summary(name, rows) for name, rows in sets.items()] + _orders(found),
        plot=lambda axes: _plot(axes, sets),
    )  # fmt: skip


def _predicted(point: Point) -> Prediction:
    found = predict(point, _without(point.arch, point.fold))
    print(f"{point.set}: {point.name}: {found.seconds / point.seconds:.2f}", flush=True)
    return found


@cache
def _without(arch: str, fold: str) -> str | None:
    """Write the description of `arch` with what was fitted without a fold; return its path.

    None stands for the architecture as it is: no row of the fold was in the fit.
    """
    constants = json.loads(FITS.read_text("utf-8"))[arch].get(fold)
    if constants is None:
        return None
    source = resources.files("sambac.arch").joinpath("data", f"{arch}.toml").read_text("utf-8")
    path = FOLDER / "device" / f"{arch} without {fold.replace('/', ' by ')}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(with_constants(source, constants), encoding="utf-8")
    return str(path)


def _row(each: Compared) -> list[Cell]:
    point = each.point
    return [
        point.name,
        point.set,
        1e3 * point.seconds,
        1e3 * each.modelled.seconds,
        f"{100 * each.error:+.1f}",
        each.modelled.sections,
        point.sections or "",
    ]


def _summary(name: str, rows: Sequence[Compared]) -> str:
    """Say how good the predictions of a set are."""
    errors = [100 * each.error for each in rows]
    measured = [each.point.seconds for each in rows]
    order = rank_correlation(measured, [each.modelled.seconds for each in rows])
    limit = f" (limit {_LIMITS[name]:g} %)" if name in _LIMITS else ", in no fit"
    text = (
        f"{name}: MAPE {_mean([abs(error) for error in errors]):.1f} %{limit}, "
        f"bias {_mean(errors):+.1f} %, rank correlation {order:.2f}, {len(rows)} rows"
    )
    counts = [e.modelled.sections / e.point.sections for e in rows if e.point.sections]
    if counts:
        text += f"; {min(counts):.2f} to {max(counts):.2f} of the published sections"
        text += f" (limit {_SECTIONS_LIMIT})"
    return f"{text}."


def _orders(found: Sequence[Compared]) -> list[str]:
    """Compare how much faster O3 is than O0 where both were measured."""
    level: Mapping[tuple[int, int, str], Compared] = {
        (c.point.hidden, c.point.layers, c.point.level): c for c in found if c.point.model == "gpt2"
    }
    pairs = [
        (each, level[hidden, layers, "O3"])
        for (hidden, layers, kind), each in level.items()
        if kind == "O0" and (hidden, layers, "O3") in level
    ]
    gains = ", ".join(
        f"{apart.point.name} {apart.modelled.seconds / fused.modelled.seconds:.1f} "
        f"({apart.point.seconds / fused.point.seconds:.1f})"
        for apart, fused in pairs
    )
    return [f"O0 over O3, modelled (measured): {gains}."]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Kendall's tau: 1 where both have one order, -1 where they have opposite ones."""
    pairs = [(i, j) for i in range(len(first)) for j in range(i)]
    signs = [(first[i] - first[j]) * (second[i] - second[j]) for i, j in pairs]
    agreed = sum((sign > 0) - (sign < 0) for sign in signs)
    return agreed / len(pairs) if pairs else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _plot(axes: Axes, sets: Mapping[str, Sequence[Compared]]) -> None:
    """Draw modelled against measured seconds, each set with a colour, beside the line of both."""
    every = [each for rows in sets.values() for each in rows]
    ends = [
        pick(s for e in every for s in (e.point.seconds, e.modelled.seconds)) for pick in (min, max)
    ]
    axes.loglog(ends, ends, color="gray", linewidth=0.8)
    for name, rows in sets.items():
        measured = [each.point.seconds for each in rows]
        axes.scatter(measured, [e.modelled.seconds for e in rows], s=14, label=name)
    axes.set_xlabel("measured, s")
    axes.set_ylabel("modelled, s")
    axes.legend(fontsize=7)
    axes.set_title("modelled against measured", fontsize=10)
