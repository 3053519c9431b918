"""Where no gradient may flow, and gradients that a recording would lose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch_runs import Lambda, gradient_reaches, operators, run_training, stops, training_source

from sambac import CompileOptions, compile
from sambac.errors import CompileError


class _Detached(nn.Module):
    """Each result depends on x by ways that carry gradients, or by others alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        first, second = self.first(x), self.second(x)
        with torch.no_grad():
            off = first * 2
            with torch.enable_grad():
                inner = second + off
            self.average.copy_(first.mean(0))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            low = functional.linear(first, self.first.weight)
        return {
            "detached": first.detach() + second,
            "off": off + second,
            "inner": inner,
            "averaged": self.average * second,
            "low": low.float() + second,
            "both": first + off,
        }


def test_what_is_detached_and_what_is_not() -> None:
    x = torch.randn(2, 3)
    source = training_source(_Detached(), x)
    model = source.model
    reached = {
        name: [gradient_reaches(model, name, f"{layer}.weight") for layer in ("first", "second")]
        for name in source.signature.outputs
    }
    assert reached == {
        "detached": [False, True],
        "off": [False, True],
        "inner": [False, True],
        "averaged": [False, True],
        "low": [False, True],
        "both": [True, False],
    }


def test_a_decorated_function_has_no_gradients() -> None:
    @torch.no_grad()
    def target(x: torch.Tensor) -> torch.Tensor:
        return functional.softmax(x, -1)

    class Distilled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            logits = self.layer(input)
            return functional.cross_entropy(logits, target(logits))

    source = training_source(Distilled(), torch.randn(2, 3))
    assert len(stops(source.model)) == 1
    assert source.signature.inputs == ("input",)
    assert gradient_reaches(source.model, "output", "layer.weight")


def test_the_padding_row_of_an_embedding_does_not_learn() -> None:
    tokens = torch.tensor([[1, 0, 2]])
    embedding = nn.Embedding(5, 3, padding_idx=0)
    source = training_source(embedding, tokens)
    (stop,) = stops(source.model)
    (where,) = (node for node in source.model.graph if node.op_type == "Where")
    assert where.inputs[1] is stop.outputs[0]
    assert (run_training(source, tokens)["output"] == embedding(tokens).detach().numpy()).all()
    assert source.evaluation is not None
    assert operators(source.evaluation) == ["Gather"]
    plain = training_source(nn.Embedding(5, 3), tokens)
    assert operators(plain.model) == ["Gather"]


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def _hooked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return y


class _InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with torch.no_grad():
            y.mul_(2)
        return y


class _OffInsideAutocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            return self.layer(x)


def test_gradients_that_would_be_lost_are_refused() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(CompileError, match="backward method of its own"):
        training_source(Lambda(_Round.apply), x)
    with pytest.raises(CompileError, match="hook on a tensor"):
        training_source(Lambda(_hooked), x)
    with pytest.raises(CompileError, match="in place"):
        training_source(_InPlace(), x.detach())
    with pytest.raises(CompileError, match="scale_grad_by_freq"):
        training_source(nn.Embedding(5, 3, scale_grad_by_freq=True), torch.tensor([1]))
    with pytest.raises(CompileError, match=r"turns gradients off inside torch\.autocast"):
        training_source(_OffInsideAutocast(), x.detach())
    layer = nn.Linear(3, 3)
    layer.register_full_backward_hook(lambda *_: None)
    with pytest.raises(CompileError, match=r"the gradients of Linear have hooks"):
        training_source(layer, x.detach())


class _Branching(nn.Module):
    """A choice by a tensor, before what trains or around it, with a detach in one branch."""

    def __init__(self, *, around: bool) -> None:
        super().__init__()
        self.layer, self.around = nn.Linear(3, 3), around

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.layer if self.around else torch.sin
        chosen = torch.cond(x.sum() > 0, lambda t: inner(t) * 2, lambda t: t.detach() - 1, (x,))
        return (chosen if self.around else self.layer(chosen)).square().mean()


@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_before_what_trains(sign: int) -> None:
    """PyTorch makes an autograd.Function of it, which is not the user's."""
    module, x = _Branching(around=False), sign * torch.rand(2, 3)
    got = run_training(training_source(module, x), x)["output"]
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-5)


def test_control_flow_around_what_trains_is_refused() -> None:
    options = CompileOptions(train=True)
    with pytest.raises(CompileError, match=r"If '\w+' \(control flow inside what is trained\)"):
        compile(_Branching(around=True), options, inputs=(torch.rand(2, 3),))


class _Repeating(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.layer, self.reentrant = nn.Linear(3, 3), reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return checkpoint(self.layer, y, use_reentrant=self.reentrant)


def test_checkpoints_of_one_kind_are_recorded() -> None:
    module, x = _Repeating(reentrant=False), torch.rand(2, 3)
    source = training_source(module, x)
    np.testing.assert_allclose(
        run_training(source, x)["output"], module(x).detach().numpy(), rtol=1e-5
    )
    with pytest.raises(CompileError, match="give it use_reentrant=False"):
        training_source(_Repeating(reentrant=True), x)


def test_nothing_stays_replaced() -> None:
    """What would lose gradients is forbidden while a module is recorded, and not longer."""
    training_source(nn.Linear(3, 3), torch.randn(2, 3))
    y = torch.ones(2, requires_grad=True)
    _Round.apply(y).sum().backward()
    assert y.grad is not None
