"""Programs of PyBuda: what import and microbatches cost, and how far two devices overlap."""

from __future__ import annotations

import statistics

from benchmarks.processes import answer_of, import_times
from benchmarks.report import Cell, Report, bars

IMPORT_LIMIT, MICROBATCH_LIMIT, OVERLAP_LIMIT = 1.3, 60.0, 1.6
_ROUNDS = 15
_WORKER = "benchmarks.pybuda_worker"


def run() -> Report:
    """Measure processes that import, microbatches of a tiny model, and pipelines of two devices."""
    imports = import_times("pybuda", _ROUNDS)
    ratio = statistics.median(ours / torch for torch, ours in imports)
    found = answer_of(_WORKER, _ROUNDS)
    added = {name: 1e6 * (ours - plain) for name, (plain, ours) in found["microbatches"].items()}
    calls = {name: 1e6 * (ours - plain) for name, (plain, ours) in found["calls"].items()}
    overlaps = {f"{1e3 * seconds:.2g} ms": gained for seconds, gained in found["overlaps"]}
    step = found["step"]["pybuda"] / found["step"]["torch"]
    shares = {
        "import / import torch": ratio / IMPORT_LIMIT,
        **{f"added, {name}": us / MICROBATCH_LIMIT for name, us in added.items()},
        **{f"stages of {time}": OVERLAP_LIMIT / gained for time, gained in overlaps.items()},
    }
    return Report(
        name="pybuda",
        question="What does PyBuda's API cost?",
        method=(
            f"Imports: whole processes in turns, {_ROUNDS} rounds. Microbatches: one sample of a "
            "perceptron 8-8-8, pushed before they are timed, through `pybuda`, and the same "
            "sections by `sambarun.Executable.run`, in turns in one process with a thread each, "
            "medians of the rounds; calls for one push it, too, and wait for it. Stages: "
            "microbatches a second of two equal perceptrons on two devices with a thread for each, "
            "over those of the same devices in sequence, in turns; a stage's time is half "
            "of a microbatch's in sequence. Step: forward, backward and update of a perceptron "
            "784-256-256-10 with one sample, loss on the device, by torch in eager mode and by "
            "`run_training`, one thread."
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
            "A call that runs one microbatch takes "
            + ", ".join(f"{us:.0f} us more in {name}" for name, us in calls.items())
            + " than its sections; one that trains gives a checkpoint each time.",
            "Two devices give "
            + ", ".join(f"{gained:.2f} with stages of {time}" for time, gained in overlaps.items())
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
    for name, (plain, ours) in found["calls"].items():
        added = 1e6 * (ours - plain)
        rows.append([f"a call for one microbatch, {name}, us", 1e6 * ours, added, ""])
    for seconds, gained in found["overlaps"]:
        stages = f"two stages of {1e3 * seconds:.2g} ms on two devices"
        rows.append([stages, gained, gained, OVERLAP_LIMIT])
    step = found["step"]
    rows.append(["step of torch, ms", 1e3 * step["torch"], "", ""])
    rows.append(["step of pybuda, ms", 1e3 * step["pybuda"], step["pybuda"] / step["torch"], ""])
    return rows
