"""Products of rows in groups, each with a matrix of its own, as experts are computed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers.integrations import moe  # registers its operator

import sambac
import sambarun

assert moe.__file__
_IN_GROUPS = torch.ops.transformers.grouped_mm_fallback
_ROWS, _OUTER, _INNER = 6, 8, 16


class Experts(nn.Module):
    """Rows in groups of given ends; those behind the last are not read."""

    def __init__(self, *, torch_own: bool, turned: bool) -> None:
        super().__init__()
        shape = (3, _INNER, _OUTER) if turned else (3, _OUTER, _INNER)
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(shape, generator=generator))
        self.torch_own, self.turned = torch_own, turned

    def forward(self, x: Tensor, ends: Tensor, known: Tensor) -> Tensor:
        weight = self.weight.transpose(-2, -1) if self.turned else self.weight
        if self.torch_own:  # takes nothing but bfloat16
            short = torch.bfloat16
            found = nn.functional.grouped_mm(x.to(short), weight.to(short), offs=ends).float()
        else:
            found = _IN_GROUPS(x, weight, ends)
        return torch.where(known, found, 0.0)


X = torch.randn(_ROWS, _OUTER, generator=torch.Generator().manual_seed(1))
ENDS = [(2, 3, 6), (0, 6, 6), (6, 6, 6), (0, 0, 6), (1, 4, 5), (0, 0, 0)]


def arguments(ends: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    known = torch.arange(_ROWS)[:, None] < ends[-1]
    return X, torch.tensor(ends, dtype=torch.int32), known


def expected(module: Experts, ends: tuple[int, ...]) -> Tensor:
    """Return what the groups are in float64, without the operator."""
    weight = module.weight.double()
    weight = weight.transpose(-2, -1) if module.turned else weight
    begins = (0, *ends[:-1])
    pairs = zip(begins, ends, strict=True)
    parts: list[Tensor] = [X[a:b].double() @ weight[e] for e, (a, b) in enumerate(pairs)]
    rest = torch.zeros(_ROWS - ends[-1], _INNER, dtype=torch.float64)
    return torch.cat([*parts, rest])


KINDS = [
    pytest.param(own, turned, id=f"{'torch' if own else 'transformers'}-{turned}")
    for own in (False, True)
    for turned in (False, True)
]


@pytest.mark.parametrize(("torch_own", "turned"), KINDS)
def test_groups_of_any_length(*, torch_own: bool, turned: bool) -> None:
    module = Experts(torch_own=torch_own, turned=turned)
    program = sambac.compile(module, inputs=arguments(ENDS[0]))
    with sambarun.load(program) as executable:
        for ends in ENDS:
            x, limits, known = (each.numpy() for each in arguments(ends))
            (found,) = executable.run({"x": x, "ends": limits, "known": known}).values()
            off = found - expected(module, ends).detach().numpy()
            assert abs(off).max() < (0.1 if torch_own else 1e-5)


@pytest.mark.parametrize(("torch_own", "turned"), KINDS)
def test_groups_train(*, torch_own: bool, turned: bool) -> None:
    module = Experts(torch_own=torch_own, turned=turned)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = module

        def forward(self, x: Tensor, ends: Tensor, known: Tensor) -> Tensor:
            found: Tensor = self.experts(x, ends, known)
            return found.square().sum()

    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    program = sambac.compile(Loss(), options, inputs=arguments(ENDS[0]))
    for ends in (ENDS[0], ENDS[1], ENDS[4]):
        with sambarun.load(program) as executable:
            x, limits, known = (each.numpy() for each in arguments(ends))
            executable.step({"x": x, "ends": limits, "known": known})
            after = executable.state()["experts.weight"]
        (gradient,) = torch.autograd.grad(expected(module, ends).square().sum(), module.weight)
        off = module.weight.detach().numpy() - after - gradient.numpy()
        assert abs(off).max() < (2e-2 if torch_own else 1e-6) * abs(gradient).max()


def test_other_groups_are_refused() -> None:
    class Columns(nn.Module):
        def forward(self, x: Tensor, y: Tensor, ends: Tensor) -> Tensor:
            return nn.functional.grouped_mm(x, y, offs=ends)

    left, right = torch.ones(8, 16, dtype=torch.bfloat16), torch.ones(16, 8, dtype=torch.bfloat16)
    given = left, right, torch.tensor([8, 16], dtype=torch.int32)
    with pytest.raises(sambac.CompileError, match=r"other than rows \[S, K\] in groups"):
        sambac.compile(Columns(), inputs=given)
