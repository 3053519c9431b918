"""Functions with a backward method of their own train as they say, not as their forward would."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_gradient_steps import Between, Body, require_gradients_of_torch, stepped
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint
from torch_runs import training_source

from sambac.errors import CompileError


class _Round(Function):
    """Straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Reverse(Function):
    """What comes back is turned around, and scaled by a number that forward is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.scale * gradient, None


class _Swish(Function):
    """Keeps x alone; twice the slope, so that no other gradient is taken for it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return 2 * gradient * (s * (1 + x * (1 - s)))


class _Pair(Function):
    """Two results, a context that another method fills, and a gradient that is not linear."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a * b, a + b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: object) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return first * b + second, (first * a + second).clamp(-0.05, 0.05)


class _Written(Function):
    """The incoming gradient is written in place, and returned."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = x.clamp(min=0)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        gradient[out == 0] = 0
        return gradient.mul_(3)


class _Sorted(Function):
    """Has results without gradients, one of them of floats, and an operator that has none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, places = x.sort(-1)
        floats = places.to(x.dtype)
        ctx.mark_non_differentiable(floats, places)
        ctx.save_for_backward(places)
        return values, floats, places

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, floats: Tensor, whole: Tensor) -> Tensor:
        (places,) = ctx.saved_tensors
        gradient = gradient + floats + whole  # those without gradients come as zeros
        return torch.zeros_like(gradient).scatter_(-1, places, gradient)


class _Affine(Function):
    """Takes parameters, one of which is broadcast, and asks what is needed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        with torch.no_grad():  # ends with this function
            return x @ weight + bias

    @staticmethod
    def vjp(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        back = gradient @ weight.t() if ctx.needs_input_grad[0] else None
        return back, x.t() @ gradient, gradient


class _Nested(Function):
    """What it calls inside has no gradients of its own there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _Swish.apply(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Round.apply(gradient * 100) / 100


class _Amp(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 5


_LOOKED_UP = _Round.apply


def _pair(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    first, second = _Pair.apply(x, bias.expand_as(x))
    return first * 3 + second


def _one_of_a_pair(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _Pair.apply(x, x.sin())[1]


def _sorted(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    values, floats, _ = _Sorted.apply(x)
    return values * floats


def _twice(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _Reverse.apply(x, 0.5) + _Reverse.apply(x, 2.0) * x


def _chained(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = _Swish.apply(x)
    return y * _Round.apply(y * 4)


def _without_gradients(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    with torch.no_grad():
        y = _Swish.apply(x)
    return y * x


class _Differentiating(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad((z * z).sum(), z)
        return gradient * slope


_BODIES: dict[str, Body] = {
    "straight through": lambda x, w, b: _Round.apply(x * 3),
    "looked up before": lambda x, w, b: _LOOKED_UP(x * 3),
    "reversed": lambda x, w, b: _Reverse.apply(x, 0.5),
    "twice": _twice,
    "chained": _chained,
    "pair": _pair,
    "one of a pair": _one_of_a_pair,
    "written in place": lambda x, w, b: _Written.apply(x),
    "sorted": _sorted,
    "differentiating": lambda x, w, b: _Differentiating.apply(x),
    "of parameters": lambda x, w, b: _Affine.apply(x, w, b),
    "nested": lambda x, w, b: _Nested.apply(x),
    "autocast": lambda x, w, b: _Amp.apply(x),
    "in a checkpoint": lambda x, w, b: checkpoint(_Swish.apply, x, use_reentrant=False),
    "under no_grad": _without_gradients,
}


@pytest.mark.parametrize("name", _BODIES)
def test_gradients_are_those_of_the_backward_method(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    require_gradients_of_torch(Between(_BODIES[name]), torch.randn(5, 4), tmp_path / "own.pef")


@pytest.mark.parametrize("options", [{"level": "O0"}, {"recompute": True}])
def test_gradients_of_ones_own_at_other_settings(options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, x = Between(_BODIES["chained"]), torch.randn(5, 4)
    usual, _ = stepped(module, x, tmp_path / "usual.pef")
    found, _ = stepped(module, x, tmp_path / "other.pef", **options)
    for name, gradient in usual.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-5, atol=1e-6)


class _Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


class _Few(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Misshapen(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient[:, :2]


class _Choosing(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.cond(gradient.sum() > 0, lambda g: g * 2, lambda g: g * 3, (gradient,))


class _Turned(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.complex(x, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.real


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda x, w, b: _Few.apply(x, b), r"_Few, whose backward .* one for each of its 2"),
        (lambda x, w, b: _Misshapen.apply(x), r"gradient of shape \[5, 2\] for .* \[5, 6\]"),
        (
            lambda x, w, b: _Choosing.apply(x),
            r"at own_gradient_steps\.py:\d+ has control flow \(If\)",
        ),
        (lambda x, w, b: _Turned.apply(x).real, r"_Turned, .* returns complex numbers"),
    ],
)
def test_what_cannot_be_recorded_is_refused(body: Body, message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message):
        stepped(Between(body), torch.randn(5, 4), tmp_path / "refused.pef")


@pytest.mark.parametrize("body", [_BODIES["pair"], lambda x, w, b: _Dirty.apply(x * 1)])
def test_functions_are_what_they_were_afterwards(body: Body) -> None:
    before = {kind: dict(vars(kind)) for kind in (_Pair, _Dirty, Function)}
    with suppress(CompileError):
        training_source(Between(body), torch.randn(5, 4))
    assert {kind: dict(vars(kind)) for kind in before} == before
