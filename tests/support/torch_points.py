"""Functions of PyTorch at extreme points: forward and gradient here, beside PyTorch's own.

Many functions share one compilation: they are the outputs of one module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import sambac
import sambarun

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Point:
    """A function, and the tensors that it is called with; those of numbers get gradients."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    gradients: Sequence[int] | None = None
    """Which inputs get gradients that are compared; by default all of floating-point numbers."""
    whole: bool = False
    """Whether gradients are compared where something is no number, too."""


class _All(torch.nn.Module):
    def __init__(self, points: Sequence[Point]) -> None:
        super().__init__()
        self.points = points

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(inputs)
        results = [point.function(*(next(given) for _ in point.inputs)) for point in self.points]
        return tuple(_first(result) for result in results)


def _first(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def differences(points: Sequence[Point], rtol: float = 2e-5, atol: float = 2e-6) -> list[str]:
    """Return what differs from PyTorch in float32 and in float64, a line each.

    Results count as a program that trains has them, and as one for inference has them. Gradients
    count but where a result of the same shape, an input, or PyTorch's gradient is no
    number, unless the point is compared as a whole.
    """
    inputs = [tensor.detach().clone() for point in points for tensor in point.inputs]
    results = [_first(point.function(*point.inputs)).detach() for point in points]
    rng = np.random.default_rng(0)
    seeds = [rng.choice([-1.5, -0.5, 0.5, 2.0], size=tuple(r.shape)).astype("f") for r in results]
    names = [f"inputs_{at}" for at in range(len(inputs))]
    found = _run(points, inputs, names, seeds)
    inferred = _inferred(points, inputs, names)
    problems, at = [], 0
    for number, (point, seed) in enumerate(zip(points, seeds, strict=True)):
        single, double = (_in_torch(point, seed, kind) for kind in (torch.float32, torch.float64))
        own = [found.get(f"{names[at + k]}__grad") for k in range(len(point.inputs))]
        at += len(point.inputs)
        made = [found[f"output_{number}"], *own]
        evaluated = inferred[f"output_{number}"]
        wrong = ~(
            _close(evaluated, single[0], rtol, atol) | _close(evaluated, double[0], rtol, atol)
        )
        if wrong.any():
            problems.append(f"{point.name} inference: {evaluated[wrong]} for {single[0][wrong]}")
        for k, (ours, one, two) in enumerate(zip(made, single, double, strict=True)):
            what = f"gradient {k - 1}" if k else "result"
            if one is None or (k and point.gradients is not None and k - 1 not in point.gradients):
                continue
            actual = np.zeros_like(one) if ours is None else ours
            wrong = ~(_close(actual, one, rtol, atol) | _close(actual, two, rtol, atol))
            if k and not point.whole:
                wrong &= ~np.isnan(one)
                numbers = (single[0], *(tensor.numpy() for tensor in point.inputs))
                for array in numbers:
                    if array is not None and array.shape == wrong.shape:
                        wrong &= ~np.isnan(array)
            if wrong.any():
                problems.append(f"{point.name} {what}: {actual[wrong]} for {one[wrong]}")
    return problems


def _run(
    points: Sequence[Point],
    inputs: Sequence[torch.Tensor],
    names: Sequence[str],
    seeds: Sequence[Array],
) -> dict[str, Array]:
    options = sambac.CompileOptions(
        train=True,
        backward_from=tuple(f"output_{at}" for at in range(len(points))),
        input_grads=tuple(n for n, x in zip(names, inputs, strict=True) if x.is_floating_point()),
    )
    program = sambac.compile(_All(points), options, inputs=tuple(inputs))
    known = {port.name for port in program.graphs[0].inputs}
    feeds = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    feeds |= {f"output_{at}__grad": seed for at, seed in enumerate(seeds)}
    with sambarun.load(program) as executable:
        results = executable.run({name: feeds[name] for name in feeds if name in known})
        return {name: np.array(array) for name, array in results.items()}


def _inferred(
    points: Sequence[Point], inputs: Sequence[torch.Tensor], names: Sequence[str]
) -> dict[str, Array]:
    program = sambac.compile(_All(points), inputs=tuple(inputs))
    known = {port.name for port in program.graphs[0].inputs}
    feeds = {name: x.numpy() for name, x in zip(names, inputs, strict=True) if name in known}
    with sambarun.load(program) as executable:
        return {name: np.array(array) for name, array in executable.run(feeds).items()}


def _in_torch(point: Point, seed: Array, dtype: torch.dtype) -> list[Array | None]:
    """Return the result, and the gradients by input, None for those without."""
    given = [x.detach().to(dtype) if x.is_floating_point() else x for x in point.inputs]
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in given]
    result = _first(point.function(*leaves))
    wanted = [x for x in leaves if x.is_floating_point()]
    found = iter(
        torch.autograd.grad(
            result, wanted, torch.from_numpy(seed).to(result.dtype), materialize_grads=True
        )
    )
    gradients = [next(found).float().numpy() if x.is_floating_point() else None for x in leaves]
    return [result.detach().float().numpy(), *gradients]


def _close(actual: Array, wanted: Array | None, rtol: float, atol: float) -> Array:
    assert wanted is not None
    assert actual.shape == wanted.shape, f"{actual.shape} for {wanted.shape}"
    close: Array = np.isclose(actual, wanted, rtol=rtol, atol=atol, equal_nan=True)
    return close
