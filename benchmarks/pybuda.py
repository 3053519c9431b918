"""Programs of PyBuda: what import and microbatches cost, and how far two devices overlap."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.report import Cell, Report, bars

IMPORT_LIMIT, MICROBATCH_LIMIT, OVERLAP_LIMIT = 1.3, 60.0, 1.6
_ROUNDS = 15
_WORKER = "benchmarks.pybuda_worker"
_STOPWATCH = Path(__file__).with_name("stopwatch.py")


def run() -> Report:
    """Measure processes that import, microbatches of a tiny model, and pipelines of two devices."""
    imports = _imports()
    ratio = statistics.median(ours / torch for torch, ours in imports)
    found = _ask()
    added = {name: 1e6 * (ours - plain) for name, (plain, ours) in found["microbatches"].items()}
    overlaps = {float(ms): gained for ms, gained in found["overlaps"].items()}
    step = found["step"]["pybuda"] / found["step"]["torch"]
    shares = {
        "import / import torch": ratio / IMPORT_LIMIT,
        **{f"added, {name}": us / MICROBATCH_LIMIT for name, us in added.items()},
        **{f"stages of {ms:g} ms": OVERLAP_LIMIT / gained for ms, gained in overlaps.items()},
    }
    return Report(
        name="pybuda",
        question="What does PyBuda's API cost?",
        method=(
            f"Imports: whole processes in turns, {_ROUNDS} rounds. Microbatches: one sample of a "
            "perceptron 8-8-8, pushed before they are timed, through `pybuda`, and the same "
            "sections by `sambarun.Executable.run`, in turns in one process with a thread each, "
            "medians of the rounds. Stages: microbatches a second of two equal perceptrons on two "
            "devices with a thread for each, over those of the same devices in sequence, in turns. "
            "Step: forward, backward and update of a perceptron 784-256-256-10 with one sample, "
            "loss on the device, by torch in eager mode and by `run_training`, one thread."
        ),
        columns=["what", "measured", "compared", "limit"],
        rows=_rows(imports, found),
        summary=[
            (
                f"`import pybuda` takes {ratio:.2f} of the time of `import torch` "
                f"(limit {IMPORT_LIMIT})."
            ),
            "A microbatch takes "
            + ", ".join(f"{us:.0f} us more {name}" for name, us in added.items())
            + f" than the sections it runs (limit {MICROBATCH_LIMIT:g}).",
            "Two devices give "
            + ", ".join(f"{gained:.2f} with stages of {ms:g} ms" for ms, gained in overlaps.items())
            + f" times the microbatches of one after the other (at least {OVERLAP_LIMIT}).",
            f"A training step takes {step:.2f} of torch's.",
        ],
        plot=bars(list(shares), list(shares.values()), title="share of the limit", limit=1.0),
    )


def _rows(imports: list[tuple[float, float]], found: dict) -> list[list[Cell]]:
    ratio = statistics.median(ours / torch for torch, ours in imports)
    rows: list[list[Cell]] = [
        ["import torch, ms", 1e3 * statistics.median(torch for torch, _ in imports), "", ""],
        ["import pybuda, ms", 1e3 * statistics.median(own for _, own in imports), ratio,
         IMPORT_LIMIT],
    ]  # fmt: skip
    for name, (plain, ours) in found["microbatches"].items():
        rows.append([f"sections of a microbatch, {name}, us", 1e6 * plain, "", ""])
        added = 1e6 * (ours - plain)
        rows.append([f"microbatch, {name}, us", 1e6 * ours, added, MICROBATCH_LIMIT])
    for ms, gained in found["overlaps"].items():
        rows.append([f"two stages of {ms} ms on two devices", gained, gained, OVERLAP_LIMIT])
    step = found["step"]
    rows.append(["step of torch, ms", 1e3 * step["torch"], "", ""])
    rows.append(["step of pybuda, ms", 1e3 * step["pybuda"], step["pybuda"] / step["torch"], ""])
    return rows


def _imports() -> list[tuple[float, float]]:
    """Return the seconds of processes that import torch, and pybuda, round by round."""
    commands = {
        "torch": [sys.executable, "-c", "import torch"],
        "ours": [sys.executable, "-c", "import pybuda"],
    }
    done = subprocess.run(
        [sys.executable, str(_STOPWATCH), str(_ROUNDS + 1)],
        input=json.dumps(commands),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    turns = json.loads(done.stdout)[1:]  # the first round fills the page cache
    return [(turn["torch"][0], turn["ours"][0]) for turn in turns]


def _ask() -> dict:
    """Return what `benchmarks.pybuda_worker` measures, in a process of its own."""
    command = [sys.executable, "-m", _WORKER, str(_ROUNDS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
