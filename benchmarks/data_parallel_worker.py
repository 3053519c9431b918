"""One process of the benchmark of data parallel training: steps in every mode, in turns.

python -m benchmarks.data_parallel_worker FOLDER rank NUMBER      one of several, over gloo
python -m benchmarks.data_parallel_worker FOLDER link BANDWIDTH   alone, over a modelled link

FOLDER has `model.pef` and `batch.npz`. Prints what `work` returns as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

import sambarun
from benchmarks.modelled_link import Link, exposed
from sambarun.linking.schedule import Reduction

if TYPE_CHECKING:
    from sambarun.execution.host_steps import Reducer

PROCESSES = 2
ROUNDS = 11
STEPS = 4
_PROFILES = 5
_AT_ONCE = 1e15


def over_gloo(folder: Path, rank: int) -> dict[str, float]:
    """Train together with the other processes; return the least seconds of a step by mode."""
    import torch.distributed as dist

    from sambahost.data_parallel import GroupReducer

    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=PROCESSES)
    times = _times(folder, GroupReducer(), dist.barrier)
    dist.destroy_process_group()
    return times


def over_link(folder: Path, bandwidth: float) -> dict[str, float]:
    """Train over a modelled link; return the least seconds of a step by mode.

    And those for which it waits (`waited <mode>`), those that the network needs for a step
    (`network`), and of these the ones in which the schedule leaves nothing to do (`exposed`),
    by the times of the sections: medians.
    """
    link = Link(bandwidth)
    times = _times(folder, link, lambda: None, lambda: link.waited)
    feeds = _feeds(folder)
    with sambarun.load(folder / "model.pef", threads=1, reducer=Link(_AT_ONCE)) as executable:
        executable.profile(feeds, reduction="inorder")
        program = executable.program
        found = [
            exposed(program, executable.profile(feeds, reduction="inorder").spans, bandwidth)
            for _ in range(_PROFILES)
        ]
    reduced = (s for s in program.sections if s.type.name == "REDUCE")
    nbytes = sum(program.symbols[index].size for s in reduced for index in s.inputs)
    return {**times, "network": nbytes / bandwidth, "exposed": statistics.median(found)}


def _times(
    folder: Path,
    reducer: Reducer,
    meet: Callable[[], None],
    waited: Callable[[], float] = lambda: 0.0,
) -> dict[str, float]:
    feeds = _feeds(folder)
    modes: tuple[Reduction, ...] = get_args(Reduction)
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    waits: dict[str, list[float]] = {mode: [] for mode in modes}
    with sambarun.load(folder / "model.pef", threads=1, reducer=reducer) as executable:
        for turn in range(ROUNDS + 1):
            for mode in modes:
                meet()
                before = waited()
                seconds = _seconds(executable, feeds, mode)
                times[mode] += [seconds] if turn else []
                waits[mode] += [(waited() - before) / STEPS] if turn else []
    return {
        **{mode: min(found) for mode, found in times.items()},
        **{f"waited {mode}": statistics.median(found) for mode, found in waits.items()},
    }


def _seconds(
    executable: sambarun.Executable, feeds: Mapping[str, object], mode: Reduction
) -> float:
    began = time.perf_counter()
    for _ in range(STEPS):
        executable.run(feeds, reduction=mode)
    return (time.perf_counter() - began) / STEPS


def _feeds(folder: Path) -> dict[str, object]:
    return dict(np.load(folder / "batch.npz"))


def work(folder: str, place: str, number: str) -> dict[str, float]:
    """Do what the arguments of the command say."""
    if place == "rank":
        return over_gloo(Path(folder), int(number))
    return over_link(Path(folder), float(number))


if __name__ == "__main__":
    print(json.dumps(work(*sys.argv[1:])))
