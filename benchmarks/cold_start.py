"""Cold start: from nothing to the first result, in seconds and peak memory."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from benchmarks import zoo
from benchmarks.processes import in_turns
from benchmarks.report import Cell, Report, bars, geometric_mean

TIME_LIMIT, MEMORY_LIMIT = 0.7, 1.05
_ROUNDS = 7
_SCRIPT = Path(__file__).with_name("smallest_script.py")


def run() -> Report:
    """Start both commands in turns on each model, with weights inside and beside the .onnx."""
    models = {"resnet50": zoo.NETWORKS["resnet50"], "bert": zoo.NETWORKS["bert"]}
    models["400 MB"] = zoo.HEAVY
    rows: list[list[Cell]] = []
    for external in (False, True):
        for name, entry in models.items():
            weights = "beside" if external else "inside"
            rows.append([name, weights, *_compare(name, entry, external=external)])
    inside = [row for row in rows if row[1] == "inside"]
    time_ratios = [float(row[4]) for row in inside]
    memory_ratios = [float(row[7]) for row in rows]
    return Report(
        name="cold_start",
        question="How long from nothing to the first result, and how much memory does it take?",
        method=(
            "Whole processes, in turns, medians of seven, files in the page cache: `sambarun "
            "FILE.pef --inputs FILE.npz` (its hashes checked) against benchmarks/"
            "smallest_script.py, which loads the .onnx with onnxruntime, runs it once and prints "
            "a summary. 'inside': the .onnx holds its weights; 'beside': in an external file, "
            "which onnxruntime maps. Memory is the peak resident set."
        ),
        columns=[
            "model", "weights", "script, s", "sambarun, s", "time ratio",
            "script, MB", "sambarun, MB", "memory ratio",
        ],
        rows=rows,
        summary=[
            (f"Weights inside the .onnx: geometric mean {geometric_mean(time_ratios):.2f} of the "
            f"script's time (limit {TIME_LIMIT})."),
            f"Peak memory at most {max(memory_ratios):.2f} of the script's (limit {MEMORY_LIMIT}).",
        ],
        plot=bars(
            [f"{row[0]}, {row[1]}" for row in rows],
            [float(row[4]) for row in rows],
            title="whole process to the first result / smallest onnxruntime script",
            limit=TIME_LIMIT,
            par=1.0,
        ),
    )  # fmt: skip


def _compare(name: str, entry: zoo.Entry, *, external: bool) -> list[Cell]:
    """Median seconds and peak megabytes of both commands, and their ratios."""
    files = zoo.make(name.replace(" ", "-"), entry, external=external)
    sambarun = str(Path(sys.executable).with_name("sambarun"))
    commands = {
        "script": [sys.executable, str(_SCRIPT), str(files.model), str(files.inputs)],
        "ours": [sambarun, str(files.pef()), "--inputs", str(files.inputs)],
    }
    turns = in_turns(commands, _ROUNDS)
    cells: list[Cell] = []
    for part in (0, 1):
        script, ours = ([turn[key][part] for turn in turns] for key in ("script", "ours"))
        ratios = [a / b for a, b in zip(ours, script, strict=True)]
        cells += [statistics.median(values) for values in (script, ours, ratios)]
    return cells
