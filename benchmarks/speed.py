"""Speed: whole models at O3 beside plain onnxruntime, and OpenVINO where it is installed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from importlib.util import find_spec

from benchmarks import zoo
from benchmarks.contestants import REFUSED, THREADS, race, ratio, runs
from benchmarks.report import Cell, Report, bars, geometric_mean

LIMIT = 1.03
PEERS = ("openvino f32", "openvino bf16")
"""Engines of the worker that an extra of the benchmarks brings."""


def run() -> Report:
    """Race the engines on each model."""
    peers = PEERS if find_spec("openvino") else ()
    rows = [_row(name, entry, peers) for name, entry in zoo.MODELS.items()]
    ratios = [float(row[3]) for row in rows]
    over = [str(row[0]) for row in rows if float(row[3]) > LIMIT]
    beside = [_beside(peer, [row[4 + index] for row in rows]) for index, peer in enumerate(peers)]
    return Report(
        name="speed",
        question="How fast is a whole model at O3?",
        method=(
            f"Batch 1, random weights, {THREADS} threads each. Each engine has a process of its "
            "own; they run in turns, fifteen rounds of a seventh of a second. Times are medians of "
            "the rounds' medians; ratios are to plain onnxruntime, the medians of the rounds' "
            "ratios."
        ),
        columns=["model", "plain onnxruntime, ms", "sambarun, ms", "ratio", *peers],
        rows=rows,
        summary=[
            (
                f"Geometric mean {geometric_mean(ratios):.3f} of plain onnxruntime's time, "
                f"worst {max(ratios):.3f} (limit {LIMIT})."
            ),
            f"Over the limit: {', '.join(over) or 'none'}.",
            *beside,
        ],
        plot=bars(
            [str(row[0]) for row in rows],
            ratios,
            title="time at O3 / time of plain onnxruntime",
            limit=LIMIT,
            par=1.0,
        ),
    )


def _beside(peer: str, ratios: Sequence[Cell]) -> str:
    """A sentence about the networks that `peer` runs."""
    values = [float(cell) for cell in ratios if cell != REFUSED]
    among = "" if len(values) == len(ratios) else f", {len(values)} of {len(ratios)} networks"
    return f"Geometric mean of {peer}: {geometric_mean(values):.3f} of plain onnxruntime's{among}."


def _row(name: str, entry: zoo.Entry, peers: Sequence[str]) -> list[Cell]:
    """Return the times of plain onnxruntime and ours, and the ratios of ours and of `peers`."""
    files = zoo.make(f"speed-{name.replace(' ', '-')}", entry)
    engines = {"plain": ("plain", files.model), "ours": ("command", files.pef())}
    running = [peer for peer in peers if runs(peer, files.model, files.inputs)]
    engines |= {peer: (peer, files.model) for peer in running}
    times = race(engines, files.inputs)
    plain, ours = (1e3 * statistics.median(times[engine]) for engine in ("plain", "ours"))
    ratios: list[Cell] = [
        ratio(times[engine], times["plain"]) if engine in engines else REFUSED
        for engine in ("ours", *peers)
    ]
    return [name, plain, ours, *ratios]
