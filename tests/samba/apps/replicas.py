"""Trains a perceptron on its share of each batch; what tests launch several times.

replicas.py compile FOLDER OPTIMIZER      compiles for shares of 4 rows
replicas.py run FOLDER OPTIMIZER          trains in every mode; weights, and names of events that
                                          were measured, go to FOLDER/OPTIMIZER.<mode>.<rank>
replicas.py fail PEF ROWS WHO HOW         trains on ROWS rows; process WHO fails in the third step
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import distributed, nn

import sambaflow.samba as samba
from sambaflow.samba import utils

ROWS, FEATURES, WIDTH, CLASSES, STEPS = 4, 16, 1024, 5, 3


class Perceptron(nn.Module):
    """Two wide layers, so that gradients are reduced in several buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.third = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = torch.relu(self.first(image))
        out = torch.relu(self.third(torch.relu(self.second(out))))
        out = self.head(out)
        return self.criterion(out, label), out


def perceptron(seed: int) -> Perceptron:
    torch.manual_seed(seed)
    return samba.from_torch_model(Perceptron())


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return samba.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    return samba.optim.AdamW(model.parameters(), lr=1e-3, max_grad_norm=0.1)


def batch(step: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    image = torch.randn(rows, FEATURES, generator=generator)
    return image, torch.randint(CLASSES, (rows,), generator=generator)


def named(image: torch.Tensor, label: torch.Tensor) -> tuple[samba.SambaTensor, ...]:
    return (
        samba.from_torch_tensor(image, name="image"),
        samba.from_torch_tensor(label, name="label"),
    )


def share(step: int, rank: int, size: int) -> tuple[samba.SambaTensor, ...]:
    """The rows of `rank` of a batch for `size` processes."""
    rows = slice(ROWS * rank, ROWS * (rank + 1))
    image, label = batch(step, ROWS * size)
    return named(image[rows], label[rows])


def compile_(folder: str, optimizer: str, rows: int = ROWS) -> None:
    model = perceptron(0)
    config = {"output_folder": folder, "data_parallel": True, "world_size": 2}
    samba.session.compile(
        model,
        named(*batch(0, rows)),
        optimizer_of(optimizer, model),
        name=optimizer,
        config_dict=config,
    )


def run(folder: str, optimizer: str) -> None:
    for mode in ("normal", "inorder", "optimal"):
        found = trained(f"{folder}/{optimizer}/{optimizer}.pef", optimizer, mode)
        # A file for each process: lines that two of them print may end up in one another.
        torch.save(found, f"{folder}/{optimizer}.{mode}.{utils.get_rank()}")


def trained(pef: str, optimizer: str, mode: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the weights after some steps, and the events of the profiler."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = perceptron(rank)  # other weights in each process: those of process 0 count
    profiler = samba.session.profiler
    profiler.start_profile()
    outputs = utils.trace_graph(
        model,
        named(*batch(0, ROWS)),
        optimizer_of(optimizer, model),
        pef=pef,
        distlearn_config={"enabled": True} if mode == "inorder" else None,
        data_parallel_mode=mode,
    )
    for step in range(STEPS):
        samba.session.run(share(step, rank, size), outputs, data_parallel=True, reduce_on_rdu=True)
    samba.session.to_cpu(model)
    profiler.stop_profile()
    names = ("PyRT_SET_TENSORS_BROADCAST", "PyRT_GET_TENSORS_GATHER")
    weights = {name: tensor.torch() for name, tensor in model.named_parameters()}
    return weights, sorted(profiler.get_latencies(names))


def fail(pef: str, rows: str, who: str, how: str) -> None:
    rank = int(os.environ["RANK"])
    model = perceptron(0)
    example = named(*batch(0, int(rows)))
    outputs = utils.trace_graph(model, example, optimizer_of("sgd", model), pef=pef)
    for step in range(30):
        if rank == int(who) and step == 2:
            FAILURES[how]()
        mode = ("normal", "inorder", "optimal")[step % 3]
        samba.session.run(
            named(*batch(step, int(rows))), outputs, data_parallel=True, data_parallel_mode=mode
        )
    print("all steps are done", flush=True)


def raise_() -> None:
    raise ValueError("bad data")


def raise_once() -> None:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("bad data")


def interrupt_the_first() -> None:
    """Send Ctrl-C to process 0, which waits for this one by now, and stay until it has ended."""
    place = distributed.distributed_c10d._get_default_store().get("host/here/0")
    first = int(place.split()[-1])
    time.sleep(2)
    os.kill(first, signal.SIGINT)
    while Path(f"/proc/{first}").exists():
        time.sleep(0.1)


FAILURES = {
    "interrupt": interrupt_the_first,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "raise": raise_,
    "raise once": raise_once,
    "exit": lambda: sys.exit(0),
    "hang": lambda: time.sleep(80),
    "be late": lambda: time.sleep(4),
}


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    {"compile": compile_, "run": run, "fail": fail}[command](*rest)
