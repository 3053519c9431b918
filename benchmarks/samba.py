"""Applications of `sambaflow.samba`: what import and runs add, and how busy the device is."""

from __future__ import annotations

import statistics

from benchmarks.processes import answer_of, import_times
from benchmarks.report import Cell, Report, bars

IMPORT_LIMIT, RUN_LIMIT, BUSY_LIMIT = 1.3, 30.0, 0.95
_ROUNDS = 15
_WORKER = "benchmarks.samba_worker"


def run() -> Report:
    """Measure processes that import, runs of a tiny model, and training with a loader."""
    imports = import_times("sambaflow.samba", _ROUNDS)
    ratio = statistics.median(ours / torch for torch, ours in imports)
    found = answer_of(_WORKER, _ROUNDS)
    rows: list[list[Cell]] = [
        ["import torch, ms", 1e3 * statistics.median(torch for torch, _ in imports), "", ""],
        [
            "import sambaflow.samba, ms",
            1e3 * statistics.median(ours for _, ours in imports),
            ratio,
            IMPORT_LIMIT,
        ],
    ]
    for name, (plain, ours) in found["runs"].items():
        rows.append([f"Executable.run, {name}, us", 1e6 * plain, "", ""])
        rows.append([f"session.run, {name}, us", 1e6 * ours, 1e6 * (ours - plain), RUN_LIMIT])
    rows.append(["device busy behind a SambaLoader", found["busy"], found["busy"], BUSY_LIMIT])
    added = {name: 1e6 * (ours - plain) for name, (plain, ours) in found["runs"].items()}
    shares = {
        "import / import torch": ratio / IMPORT_LIMIT,
        **{f"added to a run, {name}": us / RUN_LIMIT for name, us in added.items()},
        "idle behind a loader": (1 - found["busy"]) / (1 - BUSY_LIMIT),
    }
    return Report(
        name="samba",
        question="What does SambaFlow's Python API cost?",
        method=(
            f"Imports: whole processes in turns, {_ROUNDS} rounds. Runs: whole steps of a linear "
            "regression with ten parameters and 32 rows, by `samba.session.run` with SambaTensors "
            "and by `sambarun.Executable.run` with arrays, a new batch each, in turns in one "
            "process, medians of the rounds. Loader: the share of `session.run` in an epoch over "
            "a SambaLoader, whose batches are ready, of a perceptron 784-256-256-10, 64 rows."
        ),
        columns=["what", "measured", "compared", "limit"],
        rows=rows,
        summary=[
            (
                f"`import sambaflow.samba` takes {ratio:.2f} of the time of `import torch` "
                f"(limit {IMPORT_LIMIT})."
            ),
            (
                "A run by the session takes "
                + ", ".join(f"{us:.0f} us more {name}" for name, us in added.items())
                + f" (limit {RUN_LIMIT:g})."
            ),
            f"The device is busy {100 * found['busy']:.0f} % of the time (limit 95 %).",
        ],
        plot=bars(list(shares), list(shares.values()), title="share of the limit", limit=1.0),
    )
