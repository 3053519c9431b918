"""Functions of PyTorch at extreme points: forward and gradient here, beside PyTorch's own.

Many functions share one compilation: they are the outputs of one module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import pef
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

    Results count as a program that trains has them, in a step and as it evaluates. Gradients
    count but where a result of the same shape, an input, or PyTorch's gradient is no
    number, unless the point is compared as a whole.
    """
    inputs = [tensor.detach().clone() for point in points for tensor in point.inputs]
    results = [_first(point.function(*point.inputs)).detach() for point in points]
    rng = np.random.default_rng(0)
    seeds = [rng.choice([-1.5, -0.5, 0.5, 2.0], size=tuple(r.shape)).astype("f") for r in results]
    names = [f"inputs_{at}" for at in range(len(inputs))]
    found, evaluated = _run(points, inputs, names, seeds)
    problems, at = [], 0
    for number, (point, seed) in enumerate(zip(points, seeds, strict=True)):
        single, double = (_in_torch(point, seed, kind) for kind in (torch.float32, torch.float64))
        own = [found.get(f"{names[at + k]}__grad") for k in range(len(point.inputs))]
        at += len(point.inputs)
        made = [found[f"output_{number}"], *own]
        own = evaluated[f"output_{number}"]
        wrong = ~(_close(own, single[0], rtol, atol) | _close(own, double[0], rtol, atol))
        if wrong.any():
            problems.append(f"{point.name} evaluation: {own[wrong]} for {single[0][wrong]}")
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
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the results of a step, with gradients, and those of an evaluation."""
    options = sambac.CompileOptions(
        train=True,
        backward_from=tuple(f"output_{at}" for at in range(len(points))),
        input_grads=tuple(n for n, x in zip(names, inputs, strict=True) if x.is_floating_point()),
    )
    program = sambac.compile(_All(points), options, inputs=tuple(inputs))
    feeds = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    feeds |= {f"output_{at}__grad": seed for at, seed in enumerate(seeds)}
    with sambarun.load(program) as executable:
        step, evaluation = (
            executable.run(_known(feeds, graph), section_types=kinds)
            for graph, kinds in zip(program.graphs, (None, "FWD"), strict=True)
        )
        return step, evaluation


def _known(feeds: dict[str, Array], graph: pef.Graph) -> dict[str, Array]:
    ports = {port.name for port in graph.inputs}
    return {name: array for name, array in feeds.items() if name in ports}


def inferred(points: Sequence[Point], rtol: float = 2e-5, atol: float = 2e-6) -> list[str]:
    """Return which results differ from PyTorch as a program for inference has them, a line each."""
    inputs = [tensor.detach().clone() for point in points for tensor in point.inputs]
    feeds = {f"inputs_{at}": tensor.numpy() for at, tensor in enumerate(inputs)}
    program = sambac.compile(_All(points), inputs=tuple(inputs))
    with sambarun.load(program) as executable:
        results = executable.run(_known(feeds, program.graphs[0]))
    problems = []
    for number, point in enumerate(points):
        own = results[f"output_{number}"]
        one, two = (
            _first(point.function(*given)).detach().float().numpy()
            for given in (_as(torch.float32, point), _as(torch.float64, point))
        )
        wrong = ~(_close(own, one, rtol, atol) | _close(own, two, rtol, atol))
        if wrong.any():
            problems.append(f"{point.name}: {own[wrong]} for {one[wrong]}")
    return problems


Comparison = Callable[[Sequence[Point]], list[str]]

# The passes of both are those of an evaluation: a third of the time goes into compiling once more.
COMPARED = pytest.mark.parametrize(
    "compared", [differences, pytest.param(inferred, marks=pytest.mark.long)]
)
"""Tests of groups of points: of what trains, and in the long run of what is for inference."""


def _in_torch(point: Point, seed: Array, dtype: torch.dtype) -> list[Array | None]:
    """Return the result, and the gradients by input, None for those without."""
    given = _as(dtype, point)
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


def _as(dtype: torch.dtype, point: Point) -> list[torch.Tensor]:
    return [x.detach().to(dtype) if x.is_floating_point() else x for x in point.inputs]


def _close(actual: Array, wanted: Array | None, rtol: float, atol: float) -> Array:
    assert wanted is not None
    assert actual.shape == wanted.shape, f"{actual.shape} for {wanted.shape}"
    close: Array = np.isclose(actual, wanted, rtol=rtol, atol=atol, equal_nan=True)
    return close
