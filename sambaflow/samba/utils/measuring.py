"""How fast a PEF runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import repeat

import torch
from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import LIMIT, PATH
from sambaflow.samba.sambaloader import SambaLoader
from sambaflow.samba.tensors.tensor import SambaTensor, to_torch

from .environment import get_world_size, is_main_process
from .reports import save_json
from .resources import estimates
from .sections import device_of_session
from .steps import MeasuredRun, flat, traced_outputs

__all__ = ["measure_performance"]

Path = str | os.PathLike[str]


@dataclass(frozen=True)
class Performance:
    """What was measured: seconds of one step, and samples a second of all processes together."""

    e2e_latency: float
    e2e_throughput: float
    total_duration: float
    iterations: int
    batch_size: int
    world_size: int


@checked(
    "utils.measure_performance",
    json=PATH.or_none(),
    compiled_stats_json=PATH.or_none(),
    min_duration=LIMIT,
)
def measure_performance(
    model: nn.Module,
    inputs: object,
    batch_size: int = 1,
    n_chips: int | None = 1,
    inference: bool = False,
    run_graph_only: bool = False,
    n_iterations: int = 100,
    json: Path | None = None,
    compiled_stats_json: Path | None = None,
    data_parallel: bool = False,
    reduce_on_rdu: bool = False,
    use_sambaloader: bool = False,
    min_duration: float = 0.0,
    set_output_grads: bool = True,
) -> tuple[float, float]:
    """Run a traced model again and again; return samples per second and seconds per step.

    `inputs` are SambaTensors as for tracing. A step is the whole schedule, or the forward part with
    `inference`; training really trains, so parameters change. Each step sends the inputs and
    fetches the outputs, through a SambaLoader with `use_sambaloader`; with `run_graph_only` they
    are sent once and nothing is fetched. After a warm-up `n_iterations` steps are measured,
    and more until `min_duration` seconds are over. With `data_parallel` all processes measure
    together, and the throughput is that of all. What the backward pass starts from is on the device
    since `trace_graph`, so that `set_output_grads` has nothing left to set.

    The result is printed, and written to `json` if that names a file; `compiled_stats_json` gets
    what the compiler estimated for each section. `n_chips` goes into the report: the modelled
    device is one.
    Raises ValueError for no iterations or a batch of nothing, SambaError for an untraced model.
    """
    if n_iterations < 1 or batch_size < 1:
        raise ValueError(f"{n_iterations} iterations of {batch_size} samples measure nothing")
    step = MeasuredRun(traced_outputs(model), inference, data_parallel, reduce_on_rdu)
    tensors = tuple(flat(inputs))
    run = _stepper(step, tensors, run_graph_only, use_sambaloader)
    world = get_world_size() if data_parallel else 1
    _warm_up(step, tensors, run)
    seconds, done = _timed(run, n_iterations, min_duration, together=data_parallel)
    throughput = batch_size * world * done / seconds
    found = Performance(seconds / done, throughput, seconds, done, batch_size, world)
    _report(found, data_parallel)
    if json is not None and is_main_process():
        save_json(json, asdict(found) | {"n_chips": n_chips, "inference": inference})
    if compiled_stats_json is not None and is_main_process():
        save_json(compiled_stats_json, {"sections": estimates(device_of_session().program)})
    return found.e2e_throughput, found.e2e_latency


def _warm_up(
    step: MeasuredRun, tensors: tuple[SambaTensor, ...], run: Callable[[], object]
) -> None:
    """Send the inputs, and do once what is measured then."""
    if step.data_parallel:
        _tell(f"Measuring peformance with world size:  {get_world_size()}", "initial run starts.")
    step.run(tensors)
    run()
    if step.data_parallel:
        _tell("initial run completes.")


def _stepper(
    step: MeasuredRun, tensors: tuple[SambaTensor, ...], graph_only: bool, loader: bool
) -> Callable[[], object]:
    """Return what is measured: a function that does one step."""
    if graph_only:
        silent = replace(step, outputs=())
        return lambda: silent.run(None)
    if not loader:
        return lambda: step.run(tensors)
    batches = _endless(tensors)
    return lambda: step.run(next(batches))


def _endless(tensors: tuple[SambaTensor, ...]) -> Iterator[tuple[SambaTensor, ...]]:
    """Give the inputs as a loader does, without end."""
    plain = [to_torch(tensor) for tensor in tensors]
    batches: Iterable[object] = repeat(plain)
    for batch in SambaLoader(batches, [tensor.sn_name for tensor in tensors]):
        yield tuple(flat(batch))


def _timed(
    run: Callable[[], object], iterations: int, least: float, *, together: bool
) -> tuple[float, int]:
    """Return the seconds that the steps took, and how many there were.

    Both are alike in all processes that measure `together`.
    """
    of_all = _longest if together else float
    least = of_all(least)
    began, done = time.perf_counter(), 0
    while True:
        for _ in range(iterations):
            run()
        done += iterations
        seconds = of_all(time.perf_counter() - began)
        if seconds >= least:
            return seconds, done


def _longest(seconds: float) -> float:
    """Return the most that any process has, once all have come here: they stop together."""
    if get_world_size() == 1:
        return seconds
    value = torch.tensor(seconds, dtype=torch.float64)
    torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MAX)
    return float(value)


def _report(found: Performance, data_parallel: bool) -> None:
    if not data_parallel:
        _tell(
            f"e2e_throughput: {found.e2e_throughput} samples/s, measured over {found.iterations} "
            f"iterations. Average latency: {found.e2e_latency} s.",
            f"e2e_latency: {found.e2e_latency} s",
        )
        return
    _tell(
        f"e2e_latency: {found.e2e_latency} seconds, throughput: {found.e2e_throughput} samples/s, "
        f"measured over {found.iterations} iterations.",
        f"NOTE: This is the combined throughput for {found.world_size} workers",
        f"total duration: {found.total_duration} s",
    )


def _tell(*lines: str) -> None:
    if is_main_process():
        print(*lines, sep="\n")
