"""Compile time: how it grows with the number of operators."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

import sambac
from benchmarks import zoo
from benchmarks.models import synthetic
from benchmarks.report import Cell, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZES = (1_000, 10_000, 50_000)
LIMIT = 90.0  # seconds for the largest
_KINDS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "chain": synthetic.chain,
    "wide": synthetic.wide,
}
_LEVELS = ("O0", "O3")


def run() -> Report:
    """Compile and write each graph in a process of its own."""
    rows: list[list[Cell]] = []
    for kind, make in _KINDS.items():
        for size in SIZES:
            path = zoo.FOLDER / "scaling" / f"{kind}{size}.onnx"
            path.parent.mkdir(parents=True, exist_ok=True)
            onnx.save_model(make(size), path)
            rows += [[kind, level, size, _seconds(path, level)] for level in _LEVELS]
    slowest = max(float(row[3]) for row in rows if row[2] == SIZES[-1])
    growth = {f"{kind} {level}": _growth(rows, kind, level) for kind in _KINDS for level in _LEVELS}
    return Report(
        name="compile_time",
        question="How does the time to compile grow with the number of operators?",
        method=(
            "Seconds of `sambac.compile` and writing the file, one process each, imports not "
            "counted. 'chain' is a deep residual graph, 'wide' has 64 branches. The growth is the "
            "exponent between the two largest sizes: 1 is linear."
        ),
        columns=["graph", "level", "operators", "seconds"],
        rows=rows,
        summary=[
            f"{SIZES[-1]:,} operators take at most {slowest:.0f} s (limit {LIMIT:.0f}).",
            f"Growth: {', '.join(f'{name} {value:.2f}' for name, value in growth.items())}.",
        ],
        plot=lambda axes: _plot(axes, rows),
    )


def compile_once(path: Path, level: str) -> float:
    """Seconds to compile and write one file, here and now."""
    start = time.perf_counter()
    program = sambac.compile(path, sambac.CompileOptions(level=level))  # type: ignore[arg-type]
    program.save(path.with_suffix(".pef"))
    return time.perf_counter() - start


def _seconds(path: Path, level: str) -> float:
    code = (
        "import sys; from pathlib import Path; import sambac.pipeline; "  # imported when first used
        "from benchmarks.compile_time import compile_once; "
        "print(compile_once(Path(sys.argv[1]), sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(path), level]
    root = Path(__file__).parents[1]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=root)
    return float(run.stdout)


def _growth(rows: list[list[Cell]], kind: str, level: str) -> float:
    """The exponent of the time between the two largest sizes."""
    times = {int(row[2]): float(row[3]) for row in rows if row[:2] == [kind, level]}
    small, large = SIZES[-2:]
    return math.log(times[large] / times[small]) / math.log(large / small)


def _plot(axes: Axes, rows: list[list[Cell]]) -> None:
    for kind in _KINDS:
        for level in _LEVELS:
            mine = [row for row in rows if row[:2] == [kind, level]]
            sizes, seconds = [int(row[2]) for row in mine], [float(row[3]) for row in mine]
            axes.loglog(sizes, seconds, marker="o", label=f"{kind}, {level}")
    first = min(float(row[3]) for row in rows)
    ends = [SIZES[0], SIZES[-1]]
    linear = [first, first * ends[1] / ends[0]]
    axes.loglog(ends, linear, color="gray", linestyle=":", label="linear")
    axes.axhline(LIMIT, color="#e45756", linestyle="--", linewidth=0.8)
    axes.set_xlabel("operators")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=8)
    axes.set_title("time to compile", fontsize=10)
