"""Published measurements of devices, and the compilations that predict them.

`device_points.csv` has a row for each configuration: seconds measured, sections where they are
published, and where the numbers are from. A row that `fits` is one that constants are fitted to; a
`fold` is what is left out together when they are fitted to the others.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import sambac
from benchmarks.models import language
from pef.program import Program

_FILE = Path(__file__).with_name("device_points.csv")


@dataclass(frozen=True)
class Point:
    """A configuration and what was measured: `seconds` of a step, a token or a product."""

    set: str
    arch: str
    level: str
    tiles: int | None
    chips: int | None
    model: str
    hidden: int
    layers: int
    batch: int
    length: int
    seconds: float
    sections: int | None
    fold: str
    fits: bool

    @property
    def name(self) -> str:
        """What a table calls the configuration."""
        if self.model == "product":
            return f"n = {self.hidden}"
        if self.model == "gpt2":
            return f"{self.hidden} x {self.layers}"
        return f"{self.model}, batch {self.batch}, {self.length} tokens"


@dataclass(frozen=True)
class Prediction:
    """What a PEF says of the graph that was measured, and the level that it was compiled at."""

    seconds: float
    sections: int


def read_points() -> list[Point]:
    """Return all rows of the file."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return [_point(row) for row in csv.DictReader(file)]


def example(point: Point) -> language.Example:
    """Return the module that was measured, without weights, and what it takes."""
    if point.model == "product":
        return language.product(point.hidden, point.hidden, point.hidden)
    if point.model == "gpt2":
        gpt2 = language.Gpt2Shape(point.hidden, point.layers, point.hidden // 64)
        return language.gpt2_step(gpt2, point.batch)
    make = language.prefill if point.set.startswith("prefill") else language.decode
    shape = replace(language.LLAMA[point.model], layers=point.layers)
    return make(shape, point.batch, point.length)


def options(point: Point, arch: str | None = None) -> sambac.CompileOptions:
    """Return how the configuration is compiled, for its own device or a description of one."""
    trains = point.model == "gpt2"
    make: Callable[..., sambac.CompileOptions] = sambac.CompileOptions
    return make(
        level=point.level,
        arch=arch or point.arch,
        num_tiles=point.tiles,
        n_chips=point.chips,
        train=trains,
        optimizers=(sambac.AdamW(lr=1e-3),) if trains else (),
    )


def predict(point: Point, arch: str | None = None) -> Prediction:
    """Compile the configuration, and read the estimates of its PEF."""
    module, inputs = example(point)
    return predicted(sambac.compile(module, options(point, arch), inputs=inputs))


def predicted(program: Program) -> Prediction:
    """Return the sum over the schedule of the first graph: a step, or the model itself."""
    graph = program.graphs[0]
    calls = program.schedule[graph.first_call : graph.first_call + graph.calls]
    latency = sum(program.sections[section].estimate.latency for section in calls)
    return Prediction(latency, len(calls))


def _point(row: dict[str, str]) -> Point:
    return Point(
        set=row["set"],
        arch=row["arch"],
        level=row["level"],
        tiles=int(row["tiles"]) if row["tiles"] else None,
        chips=int(row["chips"]) if row["chips"] else None,
        model=row["model"],
        hidden=int(row["hidden"]),
        layers=int(row["layers"] or 0),
        batch=int(row["batch"] or 0),
        length=int(row["length"] or 0),
        seconds=float(row["seconds"]),
        sections=int(row["sections"]) if row["sections"] else None,
        fold=row["fold"],
        fits=row["fits"] == "yes",
    )
