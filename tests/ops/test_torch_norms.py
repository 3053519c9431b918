"""Norms and other reductions over all axes: their numbers, and the axes that they keep."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from near import assert_near
from torch_runs import Lambda

import sambac
import sambarun

Run = Callable[[torch.Tensor, bool], torch.Tensor]
NORMS: dict[str, Run] = {
    f"{name} {order}": lambda x, keep, norm=norm, order=order: norm(x, order, keepdim=keep)
    for name, norm in {
        "vector": torch.linalg.vector_norm,
        "tensor": torch.norm,
        "no axes": lambda x, order, keepdim: torch.linalg.vector_norm(x, order, (), keepdim),
        "flat": lambda x, order, keepdim: torch.linalg.norm(x.reshape(-1), order, keepdim=keepdim),
    }.items()
    for order in (-math.inf, 0, 0.5, 1, 2, 3, math.inf)
}
OTHERS: dict[str, Run] = {
    "plain norm": lambda x, keep: torch.linalg.norm(x, keepdim=keep),
    "as float64": lambda x, keep: torch.linalg.vector_norm(x, keepdim=keep, dtype=torch.float64),
    **{
        name: lambda x, keep, name=name: getattr(torch, name)(x, dim=None, keepdim=keep)
        for name in ("argmax", "argmin", "mean", "nanmean", "nansum", "std", "sum", "var")
    },
    **{
        name: lambda x, keep, name=name: getattr(torch, name)(x, dim=(), keepdim=keep)
        for name in ("amax", "amin", "sum")
    },
}


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4)])
def test_axes_are_kept(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    runs = {**NORMS, **({} if not shape else OTHERS)}

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(run(x, keep) for run in runs.values() for keep in (False, True))

    program = sambac.compile(Lambda(every), inputs=(x,))
    with sambarun.load(program) as executable:
        found = executable.run({program.graphs[0].inputs[0].name: x.numpy()})
    names = [f"{name}, {keep}" for name in runs for keep in (False, True)]
    for name, got, wanted in zip(names, found.values(), every(x.double()), strict=True):
        assert got.shape == tuple(wanted.shape), name
        assert_near(got, wanted.numpy(), what=name)
