"""Products of groups of rows, whose sizes values tell, with a matrix for each group."""

from __future__ import annotations

import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch.nn import functional
from transformers.integrations import moe

import sambac
import sambarun

GROUPS = {
    "of several sizes": (7, [2, 4, 5, 7]),
    "with empty ones": (6, [0, 0, 0, 6]),
    "in blocks": (40, [3, 20, 20, 40]),
    "with one row less than blocks": (23, [1, 2, 22, 23]),
    "with rows behind them": (12, [1, 5, 5, 8]),
    "without rows": (8, [0, 0, 0, 0]),
    "more than rows": (2, [0, 1, 1, 2]),
}


class _Products(nn.Module):
    """Rows, each times the matrix of its group, by the operator of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 5))
        self.scale = nn.Parameter(torch.randn(3))
        assert moe.__name__  # which registers it

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        grouped = torch.ops.transformers.grouped_mm_fallback
        found: torch.Tensor = grouped(x * self.scale, self.weight, ends)
        return found


class _Squares(_Products):
    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return super().forward(x, ends).square().sum()


@pytest.mark.parametrize("name", GROUPS)
def test_results_and_gradients(name: str) -> None:
    torch.manual_seed(0)
    rows, ends = GROUPS[name]
    inputs = (torch.randn(rows, 3), torch.tensor(ends, dtype=torch.int32))
    feeds = {"x": inputs[0].numpy(), "ends": inputs[1].numpy()}
    module = _Squares()
    with sambarun.load(sambac.compile(module, inputs=inputs)) as executable:
        found = executable.run(feeds)["output"]
    exact = exactly(module)
    loss = exact(*exactly(inputs))
    loss.backward()
    assert_near(found, loss)
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    with sambarun.load(sambac.compile(module, options, inputs=inputs)) as executable:
        executable.step(feeds)
        state = executable.state()
    for key, parameter in exact.named_parameters():
        want = parameter - parameter.grad
        assert_near(state[key], want, size=float(parameter.grad.abs().max()), what=key)


def test_any_number_of_rows() -> None:
    torch.manual_seed(0)
    module, rows = _Products(), torch.export.Dim("rows", max=20)
    ends = torch.tensor([1, 3, 3, 5], dtype=torch.int32)
    shapes = {"x": {0: rows}, "ends": None}
    program = sambac.compile(module, inputs=(torch.randn(5, 3), ends), dynamic_shapes=shapes)
    x, ends = torch.randn(17, 3), torch.tensor([9, 9, 10, 16], dtype=torch.int32)
    with sambarun.load(program) as executable:
        found = executable.run({"x": x.numpy(), "ends": ends.numpy()})["output"]
    assert_near(found, exactly(module)(*exactly((x, ends))))


class _OfPyTorch(nn.Module):
    """The same by PyTorch's operator, which can be recorded with numbers of bfloat16 alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8, 16))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        found = functional.grouped_mm(x.bfloat16(), self.weight.bfloat16(), offs=ends)
        return found.float()


def test_operator_of_pytorch() -> None:
    torch.manual_seed(0)
    module = _OfPyTorch()
    x, ends = torch.randn(10, 8), torch.tensor([2, 2, 7, 10], dtype=torch.int32)
    with sambarun.load(sambac.compile(module, inputs=(x, ends))) as executable:
        found = executable.run({"x": x.numpy(), "ends": ends.numpy()})["output"]
    groups = [0, 0, 2, 2, 2, 2, 2, 3, 3, 3]
    exact = torch.einsum("sk,skn->sn", x.double(), module.weight.detach().double()[groups])
    assert_near(found, exact, 1e-2)


def test_operator_of_pytorch_trains() -> None:
    torch.manual_seed(0)

    class Loss(_OfPyTorch):
        def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            return super().forward(x, ends).square().sum()

    module = Loss()
    x, ends = torch.randn(10, 8), torch.tensor([2, 2, 7, 10], dtype=torch.int32)
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    with sambarun.load(sambac.compile(module, options, inputs=(x, ends))) as executable:
        executable.step({"x": x.numpy(), "ends": ends.numpy()})
        after = executable.state()["weight"]
    groups = [0, 0, 2, 2, 2, 2, 2, 3, 3, 3]
    weight = module.weight.detach().double().requires_grad_()
    loss = torch.einsum("sk,skn->sn", x.double(), weight[groups]).square().sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    size = float(gradient.abs().max())
    assert_near(module.weight.detach().numpy() - after, gradient, 1e-2, size=size)


def test_other_groups_are_refused() -> None:
    class Columns(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            return functional.grouped_mm(x, y, offs=ends)

    left, right = torch.ones(8, 16, dtype=torch.bfloat16), torch.ones(16, 8, dtype=torch.bfloat16)
    ends = torch.tensor([8, 16], dtype=torch.int32)
    with pytest.raises(sambac.CompileError, match=r"other than rows \[S, K\] in groups"):
        sambac.compile(Columns(), inputs=(left, right, ends))
