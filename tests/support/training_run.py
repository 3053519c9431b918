"""Training the same module here and in PyTorch, with equal weights and data."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import sambac
import sambarun
from benchmarks.models.training import Batch, Trainee

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
MakeOptimizer = Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Comparison:
    """The worst error of any tensor, here and in float32 torch.

    An error is the norm of the difference from float64 torch, relative to the norm of the tensor.
    `left_out` are parameters whose true gradient is below 1e-6 of the largest.
    """

    ours: float
    torch32: float
    worst: str
    left_out: tuple[str, ...]


def feeds(program: sambac.CompileOptions | Any, batch: Batch) -> dict[str, Any]:
    """Return `batch` by the names of the inputs of the training graph."""
    names = [port.name for port in program.graphs[0].inputs if not port.name.endswith("__grad")]
    return dict(zip(names, (item.numpy() for item in batch), strict=True))


def loss_of(output: Any) -> torch.Tensor:
    """Return the loss in what a module's forward returns."""
    if isinstance(output, torch.Tensor):
        return output
    return output["loss"] if hasattr(output, "keys") else output[0]


def train_torch(
    trainee: Trainee, make: MakeOptimizer, steps: int, dtype: torch.dtype
) -> tuple[Arrays, Arrays]:
    """Return the state after `steps` steps in eager PyTorch, and the gradients of the first."""
    module = copy.deepcopy(trainee.module).to(dtype).train()
    optimizer = make(list(module.parameters()))
    first: Arrays = {}
    for step in range(steps):
        batch = [x.to(dtype) if x.is_floating_point() else x for x in trainee.batch(step)]
        optimizer.zero_grad()
        loss_of(module(*batch)).backward()
        if not first:
            named = module.named_parameters()
            first = {n: p.grad.numpy().copy() for n, p in named if p.grad is not None}
        optimizer.step()
    return {name: value.numpy() for name, value in module.state_dict().items()}, first


def train_here(trainee: Trainee, optimizer: sambac.Optimizer, steps: int, **options: Any) -> Arrays:
    """Return the state after `steps` steps of the compiled program."""
    program = sambac.compile(
        trainee.module,
        sambac.CompileOptions(train=True, optimizers=(optimizer,), **options),
        inputs=trainee.batch(0),
    )
    with sambarun.load(program) as executable:
        for step in range(steps):
            executable.step(feeds(program, trainee.batch(step)))
        return dict(executable.state())


def compare(
    trainee: Trainee,
    optimizer: sambac.Optimizer,
    make: MakeOptimizer,
    steps: int = 100,
    **options: Any,
) -> Comparison:
    """Train here, in float32 and in float64 PyTorch; compare both with the last."""
    exact, gradients = train_torch(trainee, make, steps, torch.float64)
    single, _ = train_torch(trainee, make, steps, torch.float32)
    ours = train_here(trainee, optimizer, steps, **options)
    largest = max(float(np.abs(g).max()) for g in gradients.values())
    left_out = tuple(n for n, g in gradients.items() if np.abs(g).max() < 1e-6 * largest)
    errors = {}
    module = trainee.module
    own = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    for name in own:  # a tied tensor once, and only buffers that are kept
        expected = exact.get(name)
        if expected is None or name in left_out or expected.dtype.kind != "f":
            continue
        scale = float(np.linalg.norm(expected)) + 1e-12
        errors[name] = (
            float(np.linalg.norm(ours[name] - expected)) / scale,
            float(np.linalg.norm(single[name] - expected)) / scale,
        )
    worst = max(errors, key=lambda name: errors[name][0])
    return Comparison(
        ours=max(error for error, _ in errors.values()),
        torch32=max(error for _, error in errors.values()),
        worst=worst,
        left_out=left_out,
    )
