"""Data parallel training: how much of the reduction of gradients each mode hides."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import sambac
from benchmarks.data_parallel_worker import PROCESSES, ROUNDS, STEPS
from benchmarks.models import training as models
from benchmarks.report import Cell, Report, bars
from pef.graphs import data_inputs

MODES = ("inorder", "optimal")
LINKS: Mapping[str, float] = {"1 Gbit/s": 0.125e9, "10 Gbit/s": 1.25e9}
"""Bytes a second of the modelled links."""
_SGD = sambac.SGD(lr=0.01, momentum=0.9)
ENTRIES: Mapping[str, Callable[[], models.Trainee]] = {
    "MLP 784-1024-1024-1024-10": lambda: models.perceptron((784, 1024, 1024, 1024, 10), batch=64),
    "transformer, 10 million": lambda: models.decoder(2, 64, 256, 9, 8, 10000),
}
_METHOD = (
    f"Modelled links: one process of one thread, and a gradient is reduced when its bytes have "
    f"passed a serial link of the bandwidth that is told; the processor is idle while it waits. "
    f"So this is the schedule alone: no other process is waited for, and nothing is added up. "
    f"This host: {PROCESSES} processes of one thread each train together over gloo; on a machine "
    f"with two processors both are busy with the step, and the reductions compete with it for "
    f"them, so that next to nothing can be hidden. Modes take turns, {ROUNDS} rounds of {STEPS} "
    f"steps; times of steps are the least of rounds, over gloo of the slower process. Network is "
    f"the time of reductions: of the bytes on a link, normal less no reduction over gloo. Hidden "
    f"is the part of it for which nothing waits (medians), over gloo the part by which a mode is "
    f"faster than normal. Possible is the part during which the schedule has something else to do, "
    f"by the times of the single sections: backward sections behind a bucket of gradients, and "
    f"updates whose gradients are there."
)


def run() -> Report:
    """Measure each model over each network, in all modes, in turns."""
    rows: list[list[Cell]] = []
    hidden: dict[str, float] = {}
    for name, make in ENTRIES.items():
        with tempfile.TemporaryDirectory() as folder:
            found = _measured(make(), Path(folder))
        for network, times in found.items():
            parts = parts_hidden(times)
            rows.append([name, network, *_milliseconds(times), *parts.values(), _possible(times)])
            if network in LINKS:
                label = f"{name.partition(' ')[0].strip(',')}, {network}"
                hidden |= {f"{label}, {mode}": part for mode, part in parts.items()}
                hidden[f"{label}, possible"] = 1 - times["exposed"] / times["network"]
    return Report(
        name="data_parallel",
        question="How much of the reduction of gradients is hidden?",
        method=_METHOD,
        columns=[
            "model",
            "network",
            "network, ms",
            "no reduction, ms",
            "normal, ms",
            "inorder, ms",
            "optimal, ms",
            "hidden, inorder",
            "hidden, optimal",
            "possible",
        ],
        rows=rows,
        summary=_summary(hidden),
        plot=bars(
            list(hidden),
            list(hidden.values()),
            title="part of the time of the network that is hidden, modelled links",
            limit=1.0,
        ),
    )


def parts_hidden(times: Mapping[str, float]) -> dict[str, float]:
    """Return the part of the time of the network that each mode hides.

    On a link it is what nothing waits for, else what a step is faster by than in mode normal.
    """
    network = _network(times)
    if "network" in times:
        return {mode: 1 - times[f"waited {mode}"] / network for mode in MODES}
    return {mode: (times["normal"] - times[mode]) / network for mode in MODES}


def _network(times: Mapping[str, float]) -> float:
    return times.get("network", times["normal"] - times["none"])


def _possible(times: Mapping[str, float]) -> Cell:
    return 1 - times["exposed"] / times["network"] if "network" in times else "-"


def _milliseconds(times: Mapping[str, float]) -> list[float]:
    return [1e3 * _network(times), *(1e3 * times[mode] for mode in ("none", "normal", *MODES))]


def _summary(hidden: Mapping[str, float]) -> list[str]:
    return [
        f"{label.removesuffix(', possible')}: of the time of the network inorder hides "
        f"{hidden[label.replace('possible', 'inorder')]:.0%}, optimal "
        f"{hidden[label.replace('possible', 'optimal')]:.0%}; about {part:.0%} can be hidden."
        for label, part in hidden.items()
        if label.endswith("possible")
    ]


def _measured(trainee: models.Trainee, folder: Path) -> dict[str, dict[str, float]]:
    """Return the seconds of a step by network and mode."""
    import numpy as np

    batch = trainee.batch(0)
    options = sambac.CompileOptions(train=True, optimizers=(_SGD,), data_parallel=True)
    program = sambac.compile(trainee.module, options, inputs=batch)
    program.save(folder / "model.pef")
    ports = [port.name for port in data_inputs(program.graphs[0])]
    feeds = dict(zip(ports, (item.numpy() for item in batch), strict=True))
    np.savez(folder / "batch.npz", **feeds)
    found = {name: _together(folder, ("link", str(band)))[0] for name, band in LINKS.items()}
    ranks = _together(folder, *(("rank", str(rank)) for rank in range(PROCESSES)))
    slowest = {mode: max(times[mode] for times in ranks) for mode in ranks[0]}
    return {**found, "gloo, this host": slowest}


def _together(folder: Path, *places: tuple[str, str]) -> list[dict[str, float]]:
    """Run a worker for each of `places` at once, and return what they print."""
    command = [sys.executable, "-m", "benchmarks.data_parallel_worker", str(folder)]
    workers = [
        subprocess.Popen([*command, *place], stdout=subprocess.PIPE, text=True) for place in places
    ]
    texts = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise RuntimeError(f"a process of {', '.join(map(' '.join, places))} has failed")
    return [json.loads(text) for text in texts]
