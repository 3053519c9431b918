"""Choices and repetition inside a module: what trains behind them, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch._higher_order_ops import while_loop
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch_runs import Lambda, run_training, training_source

import sambarun
from sambac import SGD, CompileOptions, compile
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.graph.nodes import all_nodes


class _Branching(nn.Module):
    """A choice by a tensor, before what trains or around it, with a detach in one branch."""

    def __init__(self, *, around: bool) -> None:
        super().__init__()
        self.layer, self.around = nn.Linear(3, 3), around

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.layer if self.around else torch.sin

        def without_gradients(t: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return t.detach() - 1

        other = (lambda t: t.detach() - 1) if self.around else without_gradients
        chosen = torch.cond(x.sum() > 0, lambda t: inner(t) * 2, other, (x,))
        return (chosen if self.around else self.layer(chosen)).square().mean()


@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_before_what_trains(sign: int) -> None:
    """PyTorch makes an autograd.Function of it, which is not the user's."""
    module, x = _Branching(around=False), sign * torch.rand(2, 3)
    got = run_training(training_source(module, x), x)["output"]
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-5)


def test_control_flow_around_what_trains_is_refused() -> None:
    options = CompileOptions(train=True)
    where = r"at test_torch_control_flow\.py:\d+ \(nothing is trained through control flow.*where"
    with pytest.raises(CompileError, match=rf"If '\w+' {where}"):
        compile(_Branching(around=True), options, inputs=(torch.rand(2, 3),))


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class _Repeating(nn.Module):
    def __init__(self, *, reentrant: bool, own: bool = False) -> None:
        super().__init__()
        self.layer, self.reentrant = nn.Linear(3, 3), reentrant
        self.again = _Doubled.apply if own else self.layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return checkpoint(self.again, y, use_reentrant=self.reentrant)


def test_checkpoints_of_one_kind_are_recorded() -> None:
    module, x = _Repeating(reentrant=False), torch.rand(2, 3)
    source = training_source(module, x)
    np.testing.assert_allclose(
        run_training(source, x)["output"], module(x).detach().numpy(), rtol=1e-5
    )
    with pytest.raises(CompileError, match="give it use_reentrant=False"):
        training_source(_Repeating(reentrant=True), x)
    assert training_source(_Repeating(reentrant=False, own=True), x).roles


_X = torch.linspace(-1, 2, 36).reshape(2, 3, 6)
_WINDOW = torch.linspace(-1, 1, 9).reshape(1, 3, 1, 3)
_WHERE = torch.linspace(-1, 1, 72).reshape(2, 3, 6, 2)

# Operators of ONNX that have had another version since the one that PyTorch's exporter writes.
_CHANGED: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Atan": torch.atan,
    "AveragePool": lambda t: functional.avg_pool1d(t, 3, 1, 1),
    "Conv": lambda t: functional.conv2d(t[:, :, None], _WINDOW.to(t.dtype)).sum(),
    "Cos": torch.cos,
    "Elu": functional.elu,
    "GridSample": lambda t: functional.grid_sample(
        t[:, :, None], _WHERE.to(t.dtype), align_corners=False
    ).sum(),
    "InstanceNormalization": lambda t: functional.group_norm(t, 3),
    "MaxPool": lambda t: functional.max_pool1d(t, 3, 1, 1),
    "Round": torch.round,
    "Sin": torch.sin,
    "Split": lambda t: torch.cat(t.split(1, 1), 1),
    "Tan": torch.tan,
}


def _all_of_them(t: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(t)
    for function in _CHANGED.values():
        total = total + function(t)
    return total


def _chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, _all_of_them, torch.exp, (x,)) * 2


def _chosen_otherwise(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() < 0, torch.exp, _all_of_them, (x,)) * 2


def _repeated(x: torch.Tensor) -> torch.Tensor:
    def step(i: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, _all_of_them(t)

    return while_loop(lambda i, t: i < 1, step, (torch.tensor(0), x))[1] * 2


@pytest.mark.parametrize("function", [_chosen, _chosen_otherwise, _repeated])
def test_operators_inside_are_those_outside(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """The exporter converts what stands outside to the newest opset, and nothing else."""
    source = load(Lambda(function), CompileOptions(), (_X,))
    nodes = list(all_nodes(source.model.graph))
    inside = {node.op_type for node in nodes if node.graph is not source.model.graph}
    assert inside >= _CHANGED.keys()
    assert {node.version for node in nodes} == {None}
    program = compile(source.model)
    with sambarun.load(program) as executable:
        (got,) = executable.run({source.signature.inputs[0]: _X.numpy()}).values()
    assert_near(got, function(_X.double()).numpy())


def test_operators_inside_of_what_trains() -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            chosen = torch.cond(x.sum() > 0, torch.cos, lambda t: functional.elu(t.round()), (x,))
            return self.layer(chosen).square().mean()

    module = Trained()
    compile(module, CompileOptions(train=True), inputs=(_X,))
    got = run_training(training_source(module, _X), _X)["output"]
    np.testing.assert_allclose(got, module(_X).detach().numpy(), rtol=1e-5)


class _Clamping(nn.Module):
    """A layer that clamps what overflows while it trains, and refuses what is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.training:
            if not torch.isfinite(y).all():
                y = y.clamp(-100, 100)
            if y.isinf().any():
                raise ValueError("infinite")
        return y.square().mean()


def test_numbers_of_what_trains_are_taken_for_finite_ones() -> None:
    torch.manual_seed(0)
    module, inputs = _Clamping(), (_X,)
    with pytest.warns(UserWarning, match=r"whether all numbers are finite at test_torch_") as said:
        program = compile(
            module, CompileOptions(train=True, optimizers=(SGD(lr=1.0),)), inputs=inputs
        )
    assert len(said) == 2
    exact = exactly(module)
    exact(*exactly(inputs)).backward()
    with sambarun.load(program) as executable:
        executable.step({"x": _X.numpy()})
        state = executable.state()
    for key, parameter in exact.named_parameters():
        assert_near(state[key], parameter - parameter.grad, what=key)


def _missing(x: torch.Tensor) -> torch.Tensor:
    return torch.isnan(x).any()


def _joined(x: torch.Tensor) -> torch.Tensor:
    found = torch.isinf(x)
    found |= x > 0
    return found.any()


def _marked(x: torch.Tensor) -> torch.Tensor:
    found = torch.isinf(x)
    found.view(-1)[0] = True
    return found.any()


def _joined_at_last(x: torch.Tensor) -> torch.Tensor:
    found = torch.isinf(x).any()
    return found.logical_or_((x > 0).any())


def _masked(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, -math.inf).triu(1).isinf().any()


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (_missing, "control flow depends on the values"),
        (_joined, "control flow depends on the values"),
        (_marked, "control flow depends on the values"),
        (_joined_at_last, "control flow depends on the values"),
        (_masked, r"are finite at test_torch_.*, and for the example inputs they are not"),
    ],
)
def test_questions_of_other_values_are_refused(
    question: Callable[[torch.Tensor], torch.Tensor], why: str
) -> None:
    class Asking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp() if self.training and question(x) else x

    with pytest.raises(CompileError, match=why):
        training_source(nn.Sequential(nn.Linear(6, 6), Asking()), _X)
