"""One engine training one model in a process of its own; see `benchmarks.training`."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator

Step = Callable[[], object]
_TRIAL_STEPS = 5


def eager(name: str, pef: str, threads: int) -> Step:
    """PyTorch as it is, with whatever makes it fastest: see `_eager_ways`."""
    import torch

    del pef
    torch.set_num_threads(threads)
    return min(_eager_ways(name), key=_median)


def compiled(name: str, pef: str, threads: int) -> Step:
    """`torch.compile` of forward and backward, the optimizer fused."""
    import torch

    del pef
    torch.set_num_threads(threads)
    return min(_eager_ways(name, torch.compile), key=_median)


def _eager_ways(name: str, wrap: Callable | None = None) -> Iterator[Step]:
    """Yield a step for each way to run the optimizer and to lay out images."""
    import torch

    from benchmarks.training import ENTRIES

    for fused in ({"fused": True}, {"foreach": True}):
        for channels_last in (False, True):
            torch.manual_seed(0)
            entry = ENTRIES[name]
            trainee = entry.make()
            module, batch = trainee.module.train(), trainee.batch(0)
            if channels_last:
                if all(item.ndim != 4 for item in batch):
                    continue
                module = module.to(memory_format=torch.channels_last)
                batch = tuple(
                    item.to(memory_format=torch.channels_last) if item.ndim == 4 else item
                    for item in batch
                )
            make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[entry.optimizer.kind]
            settings = {"lr": entry.optimizer.lr, **fused}
            if entry.optimizer.kind == "sgd":
                settings["momentum"] = entry.optimizer.momentum
            optimizer = make(module.parameters(), **settings)
            run = module if wrap is None else wrap(module)
            yield _torch_step(run, batch, optimizer)


def _torch_step(run: Callable, batch: tuple, optimizer: object) -> Step:
    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        run(*batch).backward()
        optimizer.step()

    return step


def ours(name: str, pef: str, threads: int) -> Step:
    """A PEF as the `sambarun` command trains it."""
    import numpy as np

    import sambarun

    executable = sambarun.load(pef, threads=threads, own_process=True)
    with np.load(pef.replace(".pef", ".npz")) as stored:
        feeds = dict(stored)
    return lambda: executable.step(feeds)


ENGINES = {"eager": eager, "compiled": compiled, "ours": ours}


def _median(step: Step) -> float:
    step()
    step()
    return statistics.median(timed(step, _TRIAL_STEPS))


def timed(step: Step, count: int) -> list[float]:
    """Return the seconds of each of `count` steps."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Prepare, then answer each number on standard input with that many times in seconds."""
    engine, name, pef, threads = sys.argv[1:]
    step = ENGINES[engine](name, pef, int(threads))
    for _ in range(3):
        step()
    for line in sys.stdin:
        print(json.dumps(timed(step, int(line))), flush=True)


if __name__ == "__main__":
    main()
