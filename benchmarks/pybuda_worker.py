"""Microbatches beside the sections that they run, and devices that overlap; see `pybuda`."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn

import pef
import pybuda
import sambarun
from sambahost import stages

_COUNT = 400
_STEPS = 200
_STEP = tuple(
    sambarun.Selection((kind,), train=kind == "FWD") for kind in ("ZEROGRAD", "FWD", "BCKWD", "OPT")
)
_STAGES = ((128, 64, 8), (256, 96, 6), (384, 192, 6), (512, 512, 6))
"""Width, rows and layers of stages, the quicker ones first."""
_TURN = 0.3
"""Seconds of microbatches in a turn."""

Way = Callable[[], float]
"""Runs something so often, and returns the seconds that one of it took."""


def microbatches(rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the seconds of a microbatch, by its sections alone and through `pybuda`.

    They are those of calls that run many, and of `calls` that run one each.
    """
    infers = _medians(rounds, _inference(_layers(8, 2), torch.randn(1, 8)))
    pybuda.shutdown()
    trains = _medians(rounds, _training(_layers(8, 2), torch.randn(1, 8), torch.randn(1, 8)))
    pybuda.shutdown()
    many = {name: (infers["sections"], infers[name]) for name in ("in threads", "in sequence")}
    return {
        "microbatches": {**many, "in training": (trains["sections"], trains["pybuda"])},
        "calls": {
            "inference": (infers["sections"], infers["calls"]),
            "training": (trains["sections"], trains["calls"]),
        },
    }


def overlaps(rounds: int) -> list[tuple[float, float]]:
    """Return the seconds of a stage, and how many microbatches two give for one in sequence."""
    return [_overlap(rounds, *sizes) for sizes in _STAGES]


def step(rounds: int) -> dict[str, float]:
    """Return the seconds of a training step, by torch and through `pybuda`."""
    torch.manual_seed(0)
    x, y, layers = torch.randn(1, 784), torch.randn(1, 10), (784, 256, 256, 10)
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, layers[-1])
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def eager() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    ways = {"torch": lambda: _repeated(_STEPS, eager), "pybuda": _training(model, x, y)["pybuda"]}
    found = _medians(rounds, ways)
    pybuda.shutdown()
    return found


def _inference(model: nn.Module, x: torch.Tensor) -> dict[str, Way]:
    device = _placed("infers", model)
    with _loaded() as programs:
        results = pybuda.initialize_pipeline(training=False, sample_inputs=(x,))
    executable = sambarun.load(programs[0], threads=1)
    feeds = {port.name: x.numpy() for port in programs[0].graphs[0].inputs}

    def infer(in_sequence: bool) -> float:
        for _ in range(_COUNT):
            device.push_to_inputs(x)

        def work() -> None:
            pybuda.run_forward(_COUNT, _sequential=in_sequence)
            for _ in range(_COUNT):
                results.get()

        return _timed(work) / _COUNT

    return {
        "sections": lambda: _repeated(_COUNT, lambda: executable.run(feeds)),
        "in threads": lambda: infer(False),
        "in sequence": lambda: infer(True),
        "calls": lambda: _repeated(_COUNT, lambda: pybuda.run_inference(inputs=[(x,)]).get()),
    }


def _training(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, Way]:
    device = _placed("trains", model, pybuda.optimizers.SGD(0.01, device_params=True))
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    device.push_to_inputs(x)
    device.push_to_target_inputs(y)
    with _loaded() as programs:
        pybuda.run_training().get()
    losses = pybuda.get_loss_queue()
    losses.get()
    executable = sambarun.load(programs[0], threads=1)
    feeds = {"tensors_0": x.numpy(), "tensors_1": y.numpy()}

    def sections() -> None:
        for selection in _STEP:
            executable.run(feeds, selection)

    def train() -> float:
        for _ in range(_STEPS):
            device.push_to_inputs(x)
            device.push_to_target_inputs(y)

        def work() -> None:
            pybuda.run_training(steps=_STEPS).get()
            for _ in range(_STEPS):
                losses.get()

        return _timed(work) / _STEPS

    def call() -> None:
        device.push_to_inputs(x)
        device.push_to_target_inputs(y)
        pybuda.run_training().get()
        losses.get()

    return {
        "sections": lambda: _repeated(_STEPS, sections),
        "pybuda": train,
        "calls": lambda: _repeated(_STEPS, call),
    }


def _overlap(rounds: int, width: int, rows: int, layers: int) -> tuple[float, float]:
    first = _placed("first", _layers(width, layers))
    _placed("second", _layers(width, layers))
    x = torch.randn(1, rows, width)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(x,))

    def infer(in_sequence: bool, count: int) -> float:
        for _ in range(count):
            first.push_to_inputs(x)

        def work() -> None:
            pybuda.run_forward(count, _sequential=in_sequence)
            for _ in range(count):
                results.get()

        return _timed(work) / count

    count = max(10, int(_TURN / min(infer(True, 10) for _ in range(3))))
    turns = [(infer(True, count), infer(False, count)) for _ in range(rounds + 1)][1:]
    pybuda.shutdown()
    seconds = statistics.median(alone for alone, _ in turns) / 2
    return seconds, statistics.median(alone / together for alone, together in turns)


def _layers(width: int, count: int) -> nn.Sequential:
    pairs = ((nn.Linear(width, width), nn.ReLU()) for _ in range(count))
    return nn.Sequential(*(part for pair in pairs for part in pair))


def _placed(
    name: str, model: nn.Module, optimizer: pybuda.optimizers.Optimizer | None = None
) -> pybuda.TTDevice:
    module = pybuda.PyTorchModule(f"{name}_module", model)
    return pybuda.TTDevice(name, module=module, optimizer=optimizer)


@contextmanager
def _loaded() -> Iterator[list[pef.Program]]:
    """Give the programs that devices load meanwhile."""
    found: list[pef.Program] = []
    load = sambarun.load

    def noted(program: pef.Program, **options: Any) -> sambarun.Executable:
        found.append(program)
        return load(program, **options)

    with mock.patch.object(stages.sambarun, "load", noted):
        yield found


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _repeated(count: int, work: Callable[[], object]) -> float:
    def again() -> None:
        for _ in range(count):
            work()

    return _timed(again) / count


def _medians(rounds: int, ways: Mapping[str, Way]) -> dict[str, float]:
    """Return the median of each way, all in turns; the first round is for caches."""
    turns = [{name: way() for name, way in ways.items()} for _ in range(rounds + 1)][1:]
    return {name: statistics.median(turn[name] for turn in turns) for name in ways}


def main() -> None:
    """Print what is measured as JSON; the argument is how many rounds there are."""
    rounds = int(sys.argv[1])
    cores = torch.get_num_threads()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {**microbatches(rounds), "step": step(rounds)}
    torch.set_num_threads(max(cores, 2))  # which two devices share
    print(json.dumps({**found, "overlaps": overlaps(rounds)}))


if __name__ == "__main__":
    main()
