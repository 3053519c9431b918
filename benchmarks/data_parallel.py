"""Data parallel training: a step of two processes in each mode, and how much reduction it hides."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import sambac
from benchmarks.models import training as models
from benchmarks.report import Cell, Report, bars

if TYPE_CHECKING:
    import sambarun
    from sambarun.schedule import Reduction

PROCESSES = 2
ROUNDS = 11
STEPS = 4
_SGD = sambac.SGD(lr=0.01, momentum=0.9)
ENTRIES: Mapping[str, Callable[[], models.Trainee]] = {
    "MLP 784-1024-1024-1024-10": lambda: models.perceptron((784, 1024, 1024, 1024, 10), batch=64),
    "transformer, 10 million": lambda: models.decoder(2, 64, 256, 9, 8, 10000),
}


def run() -> Report:
    """Measure each model in all modes, in turns."""
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    for name, make in ENTRIES.items():
        with tempfile.TemporaryDirectory() as folder:
            times = _measured(make(), Path(folder))
        alone, normal = times["none"], times["normal"]
        hidden = {mode: (normal - times[mode]) / (normal - alone) for mode in _overlapping()}
        rows.append([name, *(1e3 * seconds for seconds in times.values()), *hidden.values()])
        ratios |= {f"{name}, {mode}": times[mode] / normal for mode in _overlapping()}
    return Report(
        name="data_parallel",
        question="How much of the reduction of gradients is hidden?",
        method=(
            f"{PROCESSES} processes of one thread each train together over gloo on this host; the "
            f"modes take turns, {ROUNDS} rounds of {STEPS} steps. Times are medians of rounds, of "
            f"the slower process. Hidden is the part of the time of reductions, normal less no "
            f"reduction, that a mode saves. On a machine with two processors both are busy with "
            f"the step, and the reductions compete with it: more can be hidden where there are "
            f"more processors, or where the network does the work."
        ),
        columns=[
            "model",
            "no reduction, ms",
            "normal, ms",
            "inorder, ms",
            "optimal, ms",
            "hidden, inorder",
            "hidden, optimal",
        ],
        rows=rows,
        summary=[
            f"{label}: {ratio:.2f} of the time of a step in mode normal."
            for label, ratio in ratios.items()
        ],
        plot=bars(
            list(ratios),
            list(ratios.values()),
            title="time of a step / that in mode normal",
            limit=1.0,
            par=1.0,
        ),
    )


def _overlapping() -> tuple[str, str]:
    return "inorder", "optimal"


def _measured(trainee: models.Trainee, folder: Path) -> dict[str, float]:
    """Return the median seconds of a step by mode, of the slower process."""
    import numpy as np

    batch = trainee.batch(0)
    options = sambac.CompileOptions(train=True, optimizers=(_SGD,), data_parallel=True)
    program = sambac.compile(trainee.module, options, inputs=batch)
    program.save(folder / "model.pef")
    ports = [port.name for port in program.graphs[0].inputs if not port.name.endswith("__grad")]
    feeds = dict(zip(ports, (item.numpy() for item in batch), strict=True))
    np.savez(folder / "batch.npz", **feeds)
    command = [sys.executable, "-m", "benchmarks.data_parallel", str(folder)]
    workers = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(PROCESSES)
    ]
    found = [json.loads(worker.communicate()[0]) for worker in workers]
    return {mode: max(float(times[mode]) for times in found) for mode in found[0]}


def work(folder: Path, rank: int) -> dict[str, float]:
    """Be one of the processes; return the median seconds of a step by mode."""
    import numpy as np
    import torch.distributed as dist

    import sambarun
    from sambaflow.samba.distributed import GroupReducer
    from sambarun.schedule import Reduction

    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=PROCESSES)
    feeds = dict(np.load(folder / "batch.npz"))
    modes: tuple[Reduction, ...] = get_args(Reduction)
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    with sambarun.load(folder / "model.pef", threads=1, reducer=GroupReducer()) as executable:
        for turn in range(ROUNDS + 1):
            for mode in modes:
                dist.barrier()
                seconds = _seconds(executable, feeds, mode)
                times[mode] += [seconds] if turn else []
    dist.destroy_process_group()
    return {mode: statistics.median(found) for mode, found in times.items()}


def _seconds(
    executable: sambarun.Executable, feeds: Mapping[str, object], mode: Reduction
) -> float:
    began = time.perf_counter()
    for _ in range(STEPS):
        executable.run(feeds, reduction=mode)
    return (time.perf_counter() - began) / STEPS


if __name__ == "__main__":
    print(json.dumps(work(Path(sys.argv[1]), int(sys.argv[2]))))
