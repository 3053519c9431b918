"""One engine training one model, and the memory it took; see `benchmarks.training_memory`.

Nothing is imported before the idle process is measured but what that process is said to be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

STEPS = 5


def _plain(name: str, pef: str) -> Iterator[None]:
    del pef
    return _torch(name, {})


def _fused(name: str, pef: str) -> Iterator[None]:
    del pef
    return _torch(name, {"fused": True})


def _torch(name: str, settings: dict[str, bool]) -> Iterator[None]:
    """Yield when everything is imported, and when the steps are made."""
    import torch

    from benchmarks.contestants import THREADS
    from benchmarks.memory_models import entries

    yield
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    entry = entries()[name]
    trainee = entry.make()
    module, batch = trainee.module.train(), trainee.batch(0)
    hyper = {"lr": entry.optimizer.lr, **settings}
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[entry.optimizer.kind]
    if entry.optimizer.kind == "sgd":
        hyper["momentum"] = entry.optimizer.momentum
    optimizer = make(module.parameters(), **hyper)
    for _ in range(STEPS):
        optimizer.zero_grad()
        module(*batch).backward()
        optimizer.step()
    yield


def _ours(name: str, pef: str) -> Iterator[None]:
    """Yield when everything is imported, and when the steps are made."""
    import numpy as np

    import sambarun
    from benchmarks.contestants import THREADS

    del name
    yield
    executable = sambarun.load(pef, threads=THREADS, own_process=True)
    with np.load(pef.replace(".pef", ".npz")) as stored:
        feeds = dict(stored)
    for _ in range(STEPS):
        executable.step(feeds)
    yield


ENGINES: Mapping[str, Callable[[str, str], Iterator[None]]] = {
    "plain": _plain,
    "fused": _fused,
    "ours": _ours,
}


def _resident() -> int:
    """Return the bytes of this process that are in memory."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Run one engine on one model and print the bytes it took."""
    engine, name, pef = sys.argv[1:]
    stages = ENGINES[engine](name, pef)
    next(stages)
    idle = _resident()
    next(stages)
    print(_resident() - idle)


if __name__ == "__main__":
    main()
