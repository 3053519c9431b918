"""Speed: whole models at O3 beside plain onnxruntime."""

from __future__ import annotations

import statistics

from benchmarks import zoo
from benchmarks.contestants import THREADS, race, ratio
from benchmarks.report import Cell, Report, bars, geometric_mean

LIMIT = 1.03


def run() -> Report:
    """Race both engines on each network."""
    rows: list[list[Cell]] = []
    for name, entry in zoo.NETWORKS.items():
        files = zoo.make(name, entry)
        engines = {"plain": ("plain", files.model), "ours": ("command", files.pef())}
        times = race(engines, files.inputs)
        medians = {engine: statistics.median(values) for engine, values in times.items()}
        rows.append(
            [
                name,
                1e3 * medians["plain"],
                1e3 * medians["ours"],
                ratio(times["ours"], times["plain"]),
            ]
        )
    ratios = [float(row[-1]) for row in rows]
    over = [str(row[0]) for row in rows if float(row[-1]) > LIMIT]
    return Report(
        name="speed",
        question="How fast is a whole model at O3?",
        method=(
            f"Batch 1, random weights, {THREADS} threads each. Each engine has a process of its "
            "own; they run in turns, fifteen rounds of a seventh of a second. Times are medians of "
            "the rounds' medians, the ratio is the median of the rounds' ratios."
        ),
        columns=["network", "plain onnxruntime, ms", "sambarun, ms", "ratio"],
        rows=rows,
        summary=[
            (
                f"Geometric mean {geometric_mean(ratios):.3f} of plain onnxruntime's time, "
                f"worst {max(ratios):.3f} (limit {LIMIT})."
            ),
            f"Over the limit: {', '.join(over) or 'none'}.",
        ],
        plot=bars(
            [str(row[0]) for row in rows],
            ratios,
            title="time at O3 / time of plain onnxruntime",
            limit=LIMIT,
            par=1.0,
        ),
    )
