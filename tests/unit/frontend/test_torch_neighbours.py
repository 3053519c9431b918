"""The next number of a type, bit by bit beside PyTorch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch_runs import Lambda

import sambac
import sambarun
from sambac.errors import CompileError
from sambac.frontend.torch.programs.neighbours import nextafter


def _numbers(dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of all sizes, each with some of those next to it."""
    kind = torch.finfo(dtype)
    edges = [0.0, 1.0, kind.max, math.inf, math.nan]
    edges += [kind.smallest_normal * factor for factor in (kind.eps, 1, 2, 1 / kind.eps)]
    edges += (2.0 ** np.arange(-60, 60)).tolist()
    found = [torch.tensor(edges, dtype=dtype)]
    for end in (math.inf, -math.inf) * 2:
        found.append(torch.nextafter(found[-1], torch.tensor(end, dtype=dtype)))
    return torch.cat([*found, *(-item for item in found)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_bits_are_right(dtype: torch.dtype) -> None:
    x = _numbers(dtype)
    for y in (math.inf, -math.inf, 0.0, 1.0, math.nan):
        goal = torch.tensor(y, dtype=dtype)
        found = nextafter(x, goal)
        assert found.dtype is dtype
        np.testing.assert_array_equal(found, torch.nextafter(x, goal))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_programs_give_the_next_number(dtype: torch.dtype) -> None:
    x = _numbers(dtype)
    x = x[x.isfinite() & ((x == 0) | (x.abs() > torch.finfo(dtype).smallest_normal))]
    module = Lambda(lambda x, y: torch.nextafter(x, y))
    goal = torch.linspace(-3, 3, len(x), dtype=dtype)
    with sambarun.load(sambac.compile(module, inputs=(x, goal))) as executable:
        (found,) = executable.run({"args_0": x.numpy(), "args_1": goal.numpy()}).values()
    np.testing.assert_array_equal(found, torch.nextafter(x, goal))


def test_numbers_of_16_bits_are_refused() -> None:
    module = Lambda(lambda x: torch.nextafter(x, x + 1))
    with pytest.raises(CompileError, match=r"nextafter of torch.bfloat16.*give float32"):
        sambac.compile(module, inputs=(torch.ones(2, dtype=torch.bfloat16),))
