"""Memory plans: how close the memory used comes to the largest sum of bytes alive at once."""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import sambac
from benchmarks import zoo
from benchmarks.report import Cell, Report
from pef import Program
from pef.symbols import RegionKind
from sambac.planning.addresses import first_fit, peak_of, placing_orders, plan_offsets
from sambac.planning.memory import ALIGNMENT
from sambac.planning.pressure import Neighbours, Pressure, Spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIMIT = 1.01  # real networks
LARGE_LIMIT = 1.03  # 20,000 spans
LARGE = 20_000

_CUTS = {
    "O0": sambac.CompileOptions(level="O0"),
    "5 sections": sambac.CompileOptions(sections=5),
    "20 sections": sambac.CompileOptions(sections=20),
}
_HOME = (RegionKind.HBM, RegionKind.DDR)


def run() -> Report:
    """Plan real networks at three cuts, and synthetic sets from easy to without any slack."""
    rows: list[list[Cell]] = []
    for name, entry in zoo.NETWORKS.items():
        model = entry.make()
        for cut, options in _CUTS.items():
            spans = transient_spans(sambac.compile(model, options))
            rows.append(_row(name, cut, spans))
    real = len(rows)
    for name, make in SYNTHETIC.items():
        rows.append(_row(name, "synthetic", make()))
    rows.extend(_row(name, "published", *read_instance(name)) for name in INSTANCES)
    return _report(rows, real)


def transient_spans(program: Program) -> Spans:
    """Return what comes and goes in the device's own memory; weights would flatter the ratio."""
    last_call = len(program.schedule) - 1
    sizes, first, last = [], [], []
    for symbol in program.symbols:
        if symbol.allocation is None or symbol.size == 0:
            continue
        allocation = program.allocations[symbol.allocation]
        persistent = {region.kind: region.persistent for region in program.regions}
        if allocation.region in _HOME and allocation.address >= persistent[allocation.region]:
            sizes.append(-(-symbol.size // ALIGNMENT) * ALIGNMENT)
            first.append(max(symbol.first_call, 0))
            last.append(min(symbol.last_call, last_call))
    return Spans.of(sizes, first, last)


def uniform(count: int, seed: int = 1) -> Spans:
    """Make spans of any size and length, some hundred of them alive at once."""
    dice = random.Random(seed)
    first = [dice.randrange(count) for _ in range(count)]
    sizes = [dice.randrange(1, 1000) * ALIGNMENT for _ in range(count)]
    return Spans.of(sizes, first, [begin + dice.randrange(1, 200) for begin in first])


def training(count: int, seed: int = 1) -> Spans:
    """Make spans as of a training step: half of the first half lives until its way back."""
    dice = random.Random(seed)
    sizes = [dice.choice((1, 2, 3, 4, 8)) * 100 * ALIGNMENT for _ in range(count)]
    last = [begin + dice.randrange(1, 5) for begin in range(count)]
    for begin in range(count // 2):
        if dice.random() < 0.5:
            last[begin] = count - begin
    return Spans.of(sizes, list(range(count)), last)


def packed(count: int, seed: int = 1) -> Spans:
    """Cut a full rectangle of time and memory into `count` pieces: a plan without gaps exists."""
    dice = random.Random(seed)
    pieces = [(0, 1_000, 0, 16_384)]
    while len(pieces) < count:
        areas = [(end - begin) * (top - low) for begin, end, low, top in pieces]
        index = dice.choices(range(len(pieces)), areas)[0]
        begin, end, low, top = pieces[index]
        if dice.random() < 0.5 and end - begin > 1:
            middle = dice.randrange(begin + 1, end)
            pieces[index], other = (begin, middle, low, top), (middle, end, low, top)
        elif top - low > 1:
            middle = dice.randrange(low + 1, top)
            pieces[index], other = (begin, end, low, middle), (begin, end, middle, top)
        else:
            continue
        pieces.append(other)
    dice.shuffle(pieces)
    sizes = [(top - low) * ALIGNMENT for _, _, low, top in pieces]
    return Spans.of(sizes, [piece[0] for piece in pieces], [piece[1] - 1 for piece in pieces])


_PUBLISHED = Path(__file__).with_name("minimalloc")
INSTANCES = tuple(sorted(path.stem for path in _PUBLISHED.glob("*.csv")))


def read_instance(name: str) -> tuple[Spans, int]:
    """Return the spans of one of the published `INSTANCES`, and the limit of their ends."""
    with open(_PUBLISHED / f"{name}.csv", encoding="ascii", newline="") as file:
        rows = [
            (int(row["size"]), int(row["lower"]), int(row["upper"])) for row in csv.DictReader(file)
        ]
    sizes, first, after = (list(column) for column in zip(*rows, strict=True))
    return Spans.of(sizes, first, [end - 1 for end in after]), int(name.partition(".")[2])


SYNTHETIC: Mapping[str, Callable[[], Spans]] = {
    "no slack, 50": lambda: packed(50),
    "no slack, 150": lambda: packed(150),
    "no slack, 400": lambda: packed(400),
    "training, 5,000": lambda: training(5_000),
    "uniform, 20,000": lambda: uniform(LARGE),
}


def _row(name: str, cut: str, spans: Spans, limit: int | None = None) -> list[Cell]:
    """Ratios to the largest sum of live bytes: first fit in each order, then the whole planner.

    The planner searches on where its plan ends above `limit`.
    """
    bound = max(Pressure(spans).peak, 1)
    neighbours = Neighbours(spans)
    orders = [
        peak_of(spans, first_fit(spans, neighbours, order)) / bound
        for order in placing_orders(spans).values()
    ]
    start = time.process_time()
    ratio = peak_of(spans, plan_offsets(spans, limit)) / bound
    seconds = time.process_time() - start
    shared = int(spans.sizes.sum()) / bound
    allowed = "" if limit is None else f"{limit / bound:.4f}"
    return [name, cut, len(spans), shared, *_rounded(*orders, ratio), seconds, allowed]


def _rounded(*ratios: float) -> Iterator[str]:
    """Spell ratios with the digits that matter near 1."""
    return (f"{ratio:.4f}" for ratio in ratios)


def _report(rows: list[list[Cell]], real: int) -> Report:
    planned, seconds = 7, 8
    worst = max(float(row[planned]) for row in rows[:real])
    worst_order = max(float(row[4]) for row in rows[:real])
    large = next(row for row in rows if row[2] == LARGE)
    return Report(
        name="memory_plan",
        question="How much more memory than the bytes alive at once does a plan use?",
        method=(
            "Peak address over the largest sum of bytes alive at once, of what comes and goes "
            "(weights, which are always there, would flatter it), in sizes rounded up to "
            f"{ALIGNMENT} bytes. 'no sharing' is the sum of all sizes. Then first fit in single "
            "orders, and the planner, which takes the best of them and improves it. 'no slack' "
            "are full rectangles cut into pieces: a plan at 1 exists and is hard to find. The "
            "published instances have a limit to be met, as a region's capacity is; below it the "
            "planner need not go. Seconds are those of the processor."
        ),
        columns=[
            "model",
            "cut",
            "buffers",
            "no sharing",
            *placing_orders(Spans.of([1], [0], [0])),
            "planner",
            "seconds",
            "limit",
        ],
        rows=rows,
        summary=[
            f"Real networks: at most {worst:.4f} (limit {LIMIT}); largest first {worst_order:.4f}.",
            f"{LARGE:,} buffers: {large[planned]} (limit {LARGE_LIMIT}) in {large[seconds]:.1f} s.",
            _instances_met(rows),
        ],
        plot=lambda axes: _plot(axes, rows),
    )


def _instances_met(rows: list[list[Cell]]) -> str:
    """Return how many published instances fit, and the longest time that took."""
    met = [row for row in rows if row[9] and float(row[7]) <= float(row[9])]
    slowest = max((float(row[8]) for row in met), default=0)
    return (
        f"Published instances: {len(met)} of {len(INSTANCES)} within their limits, the slowest "
        f"in {slowest:.1f} s."
    )


def _plot(axes: Axes, rows: list[list[Cell]]) -> None:
    """Draw the ratios of every set on which some order does not reach the bound, a line each."""
    orders = tuple(placing_orders(Spans.of([1], [0], [0])))
    shown = [row for row in rows if any(float(cell) > 1 for cell in row[4:8])][::-1]
    lines = range(len(shown))
    for column, (name, marker) in enumerate(zip(orders, "<>^", strict=True), start=4):
        ratios = [float(row[column]) for row in shown]
        axes.scatter(ratios, lines, marker=marker, label=name, facecolor="none", edgecolor="0.6")
    axes.scatter([float(row[7]) for row in shown], lines, label="planner", color="#4c78a8")
    axes.axvline(LIMIT, color="#e45756", linestyle="--", linewidth=0.8)
    axes.set_yticks(lines, [f"{row[0]}, {row[1]}" for row in shown], fontsize=8)
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.legend(fontsize=8)
    left_out = len(rows) - len(shown)
    axes.set_title(
        f"peak / live bytes ({left_out} sets with all orders at 1 left out)", fontsize=10
    )
