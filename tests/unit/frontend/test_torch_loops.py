"""Loops of PyTorch, `scan` and `map`: run as loops, trained written out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.scan import scan
from torch_runs import run_training, training_source

import sambarun
from sambac import SGD, CompileOptions, compile
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.graph.nodes import all_nodes

_X = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))


class _Cell(nn.Module):
    def __init__(self, loop: Callable[[_Cell, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(1)
        self.w = nn.Parameter(torch.randn(3, 3, generator=drawn) / 2)
        self.b = nn.Parameter(torch.randn(3, generator=drawn))
        self.first = nn.Parameter(torch.zeros(2, 3))
        self.loop = loop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loop(self, x)

    def step(self, c: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        c = torch.tanh(c @ self.w + row)
        return c, c * self.b


def _scanned(cell: _Cell, x: torch.Tensor, *, reverse: bool = False) -> torch.Tensor:
    c, rows = scan(cell.step, cell.first, x, dim=0, reverse=reverse)
    return rows.square().mean() + c.sum()


def _several(cell: _Cell, x: torch.Tensor) -> torch.Tensor:
    def step(
        c: tuple[torch.Tensor, torch.Tensor], row: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]:
        hidden, out = cell.step(c[0], row)
        return (hidden, c[1] + out), {"out": out, "sum": c[1] * hidden}

    carried, rows = scan(step, (cell.first, torch.zeros_like(cell.first)), x.transpose(0, 1), dim=1)
    return rows["out"].square().mean() + rows["sum"].sum() + carried[1].sum()


def _mapped(cell: _Cell, x: torch.Tensor) -> torch.Tensor:
    return map_rows(lambda row, w: torch.tanh(row @ w) * cell.b, x, cell.w).square().mean()


def _mapped_in_a_scan(cell: _Cell, x: torch.Tensor) -> torch.Tensor:
    def step(c: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return cell.step(c, map_rows(lambda row: row * cell.b, rows))

    return scan(step, cell.first, x, dim=0)[1].square().mean()


_LOOPS = {
    "scan": lambda cell, x: _scanned(cell, x) + _mapped(cell, x),
    "from the end": lambda cell, x: _scanned(cell, x, reverse=True),
    "several": _several,
    "map in a scan": _mapped_in_a_scan,
    "before what trains": lambda cell, x: (map_rows(torch.sin, x) @ cell.w).square().mean(),
}


@pytest.mark.parametrize("name", ["scan", "map in a scan", "before what trains"])
def test_loops_run(name: str) -> None:
    cell = _Cell(_LOOPS[name]).requires_grad_(name != "scan")
    source = load(cell, CompileOptions(), (_X,))
    assert "Scan" in {node.op_type for node in all_nodes(source.model.graph)}
    with sambarun.load(compile(source.model)) as executable:
        (found,) = executable.run({source.signature.inputs[0]: _X.numpy()}).values()
    assert_near(found, cell(_X).detach().double().numpy())


@pytest.mark.parametrize("name", ["from the end", "several", "map in a scan", "before what trains"])
def test_loops_train(name: str) -> None:
    cell = _Cell(_LOOPS[name])
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    with sambarun.load(compile(cell, options, inputs=(_X,))) as executable:
        before = executable.state()
        (loss,) = executable.step({"x": _X.numpy()}).values()
        after = executable.state()
    cell.double().zero_grad()
    expected = cell(exactly(_X))
    expected.backward()
    assert_near(loss, expected.detach().numpy())
    for key, parameter in cell.named_parameters():
        if parameter.grad is not None:
            assert_near(before[key] - after[key], parameter.grad.numpy(), what=key)


def test_loops_of_any_length_run() -> None:
    class Waves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return map_rows(lambda row: torch.sin(row) * 2, x)

    sizes = ({0: torch.export.Dim("rows", min=2, max=9)},)
    program = compile(Waves(), inputs=(_X,), dynamic_shapes=sizes)
    rows = np.linspace(-1, 1, 42, dtype="f").reshape(7, 2, 3)
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": rows}).values()
    assert_near(found, np.sin(rows.astype(np.float64)) * 2)


@pytest.mark.parametrize("training", [False, True])
def test_what_a_body_cannot_do_is_told(training: bool) -> None:
    def dropping(cell: _Cell, x: torch.Tensor) -> torch.Tensor:
        def step(c: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return cell.step(nn.functional.dropout(c, 0.5, training=True), row)

        return scan(step, cell.first, x, dim=0)[1].mean()

    options = CompileOptions(train=training, optimizers=(SGD(lr=1.0),) if training else ())
    says = r"at test_torch_loops\.py:\d+: .*dropout does not; compute it outside of the loop"
    with pytest.raises(CompileError, match=says):
        compile(_Cell(dropping), options, inputs=(_X,))


@pytest.mark.parametrize(
    ("loop", "says"),
    [
        (
            lambda cell, x: scan(lambda c, row: ((h := c + row), h), cell.first, x)[0],
            r"returns one tensor twice, .*; return x\.clone\(\)",
        ),
        (
            lambda cell, x: scan(lambda c, row: (c @ cell.w, c.argmax(0)), cell.first, x)[0],
            r"carries or gives whole numbers; let it .*torch\.no_grad\(\)",
        ),
        (
            lambda cell, x: map_rows(lambda row, w, by: row @ w * by, x, cell.w, 2.0),
            "hand on tensors alone .*; let the function itself have the numbers",
        ),
    ],
    ids=["twice", "whole", "number"],
)
def test_what_pytorch_does_not_loop_is_told(
    loop: Callable[[_Cell, torch.Tensor], torch.Tensor], says: str
) -> None:
    with pytest.raises(CompileError, match=says):
        compile(_Cell(loop), inputs=(_X,))


@pytest.mark.parametrize("train", [True, False])
def test_derivatives_of_loops_that_train(train: bool) -> None:
    """Those of the written-out loop; a program that evaluates has the loop, and is refused."""

    def derived(cell: _Cell, x: torch.Tensor) -> torch.Tensor:
        out = _scanned(cell, x)
        return torch.autograd.grad(out, cell.w, create_graph=True)[0].sum() + out

    module = _Cell(derived)
    if not train:
        with pytest.raises(CompileError, match="derivative of scan, which cannot be recorded"):
            compile(module, inputs=(_X,))
        return
    found = run_training(training_source(module, _X), _X)["output"]
    assert_near(found, exactly(module)(exactly(_X)).detach().numpy())


def test_a_loop_without_gradients_has_none() -> None:
    def scaled(cell: _Cell, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            size = _scanned(cell, x)
        return size * (x @ cell.w).square().mean()

    module = _Cell(scaled)
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    with sambarun.load(compile(module, options, inputs=(_X,))) as executable:
        before = executable.state()["w"]
        executable.step({"x": _X.numpy()})
        found = before - executable.state()["w"]
    exact = exactly(module)
    exact(exactly(_X)).backward()
    assert_near(found, exact.w.grad)
