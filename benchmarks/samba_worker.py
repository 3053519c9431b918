"""Runs of a session beside those of an executable, in one process; see `benchmarks.samba`."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle

import torch

import sambaflow.samba as samba
import sambaflow.samba.utils as utils
from benchmarks.models import training as models
from pef.graphs import data_inputs
from sambaflow.samba.sambaloader import SambaLoader

Inputs = tuple[samba.SambaTensor, ...]

_COUNT = 200
_BATCHES = 400
_DIFFERENT = 8
_NAMES = ("x", "y")


def traced(trainee: models.Trainee, folder: str) -> tuple[Inputs, Inputs]:
    """Compile a model for training, and load it; return its inputs and outputs."""
    model = trainee.module
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.01)
    inputs = _named(trainee.batch(0))
    pef = samba.session.compile(model, inputs, optimizer, config_dict={"output_folder": folder})
    return inputs, utils.trace_graph(model, inputs, optimizer, pef=pef)


def _named(batch: models.Batch) -> Inputs:
    return tuple(
        samba.from_torch_tensor(part, name=name) for part, name in zip(batch, _NAMES, strict=True)
    )


def runs(folder: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the seconds of a step by the executable and by the session, by what it is given."""
    trainee = models.linear_regression()
    _, outputs = traced(trainee, folder)
    executable, run = samba.session.device.executable, samba.session.run
    ports = [port.name for port in data_inputs(executable.program.graphs[0])]
    # Another batch in each step, as in training: what is given anew has to be bound anew.
    batches = [trainee.batch(number) for number in range(_DIFFERENT)]
    feeds = cycle([dict(zip(ports, (x.numpy() for x in parts), strict=True)) for parts in batches])
    inputs = cycle([_named(parts) for parts in batches])
    rate = {"lr": 0.01}
    pairs = {
        "without hyperparameters": (
            lambda: executable.run(next(feeds)),
            lambda: run(input_tensors=next(inputs), output_tensors=outputs),
        ),
        "with hyperparameters": (
            lambda: executable.run(next(feeds), hyperparams=rate),
            lambda: run(input_tensors=next(inputs), output_tensors=outputs, hyperparam_dict=rate),
        ),
    }
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
    for _ in range(rounds + 1):
        for name, ways in pairs.items():
            for way, times in zip(ways, found[name], strict=True):
                times.append(timed(way))
    return {
        name: (statistics.median(plain[1:]), statistics.median(ours[1:]))
        for name, (plain, ours) in found.items()
    }


def timed(step: Callable[[], object]) -> float:
    """Return the median seconds of some steps."""
    times = []
    for _ in range(_COUNT):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def busy(folder: str, rounds: int) -> float:
    """Return which share of an epoch the session runs, the loader's batches being at hand."""
    trainee = models.perceptron((784, 256, 256, 10), batch=64)
    _, outputs = traced(trainee, folder)
    batches = [trainee.batch(0)] * _BATCHES
    return statistics.median(_share(batches, outputs) for _ in range(rounds))


def _share(batches: list[tuple[torch.Tensor, ...]], outputs: Inputs) -> float:
    inside = 0.0
    start = time.perf_counter()
    for inputs in SambaLoader(batches, _NAMES):
        before = time.perf_counter()
        samba.session.run(input_tensors=inputs, output_tensors=outputs)
        inside += time.perf_counter() - before
    return inside / (time.perf_counter() - start)


def main() -> None:
    """Print what is measured as JSON; the argument is how many rounds there are."""
    rounds = int(sys.argv[1])
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        found = {"runs": runs(folder, rounds), "busy": busy(folder, max(1, rounds // 3))}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
