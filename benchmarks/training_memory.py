"""Memory of training: what a process holds after a few steps, beside eager PyTorch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from itertools import accumulate
from pathlib import Path

from benchmarks.contestants import THREADS
from benchmarks.memory_models import entries
from benchmarks.memory_worker import ENGINES, STEPS
from benchmarks.report import Cell, Report, bars, geometric_mean
from benchmarks.training import Entry, prepare
from pef import Program, SymbolKind
from pef import open as open_pef

LIMIT = 1.0
_MIB = 1 << 20


def run() -> Report:
    """Measure each model."""
    rows = [_row(name, entry) for name, entry in entries().items()]
    counted = rows[:-2]
    peaks = [float(row[5]) for row in rows[-2:]]
    residents = [float(row[3]) for row in rows[-2:]]
    return Report(
        name="training_memory",
        question="How much memory does training take?",
        method=(
            f"Resident memory of a process after {STEPS} steps, less that of the same process "
            f"right after its imports; each in a process of its own, {THREADS} threads. 'plain' is "
            "PyTorch eager with the optimizer as it comes, 'fused' with fused=True, the leanest "
            "one. 'planned' is what the memory plan gives the program, 'activations' the largest "
            "sum of activations between sections that are alive at once; what flows inside a "
            "section is in neither, and is in the resident memory."
        ),
        columns=[
            "model", "PyTorch plain, MB", "PyTorch fused, MB", "sambarun, MB",
            "planned, MB", "activations, MB", "ratio to plain", "ratio to fused",
        ],
        rows=rows,
        summary=[
            (f"Geometric mean {geometric_mean([float(row[6]) for row in counted]):.2f} of plain "
            f"PyTorch's memory, worst {max(float(row[6]) for row in counted):.2f}; of PyTorch's "
            f"with a fused optimizer {geometric_mean([float(row[7]) for row in counted]):.2f}, "
            f"worst {max(float(row[7]) for row in counted):.2f}."),
            (f"With --recompute a transformer of 12 layers has {peaks[1] / peaks[0]:.0%} of its "
            f"planned activations, and {residents[1] / residents[0]:.0%} of its resident memory."),
        ],
        plot=bars(
            [str(row[0]) for row in rows],
            [float(row[6]) for row in rows],
            title="resident memory of training / eager PyTorch",
            limit=LIMIT,
        ),
    )  # fmt: skip


def _row(name: str, entry: Entry) -> list[Cell]:
    with tempfile.TemporaryDirectory() as folder:
        pef = str(Path(folder) / "model.pef")
        prepare(entry, pef)
        plain, fused, ours = (_measure(engine, name, pef) for engine in ENGINES)
        with open_pef(pef) as file:
            planned = sum(region.used for region in file.program.regions)
            activations = activation_peak(file.program)
    sizes = [size / _MIB for size in (plain, fused, ours, planned, activations)]
    return [name, *sizes, ours / plain, ours / fused]


def activation_peak(program: Program) -> int:
    """Return the most bytes of activations that are alive at once, by the plan."""
    change = [0] * (len(program.schedule) + 2)
    for symbol in program.symbols:
        if symbol.kind is SymbolKind.ACTIVATION:
            change[max(symbol.first_call, 0)] += symbol.size
            change[symbol.last_call + 1] -= symbol.size
    return max(accumulate(change))


def _measure(engine: str, name: str, pef: str) -> int:
    command = [sys.executable, "-m", "benchmarks.memory_worker", engine, name, pef]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
