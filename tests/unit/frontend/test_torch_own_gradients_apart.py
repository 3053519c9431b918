"""Functions with a backward method of their own that return, take or write uncommon things."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread, get_ident
from typing import Any

import pytest
import torch
from own_gradient_steps import Between, Body, require_gradients_of_torch, stepped
from torch import Tensor
from torch._functorch import utils as functorch
from torch.autograd import Function
from torch_runs import training_source

from sambac.errors import CompileError


def _function(forward: Callable[..., Any], backward: Callable[..., Any]) -> type[Function]:
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Made", (Function,), methods)


def _constant(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, constant = x * 2, x.sin()
    ctx.mark_non_differentiable(constant)
    return y, constant, x.argmax()


def _twice(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y


def _written(ctx: Any, x: Tensor) -> Tensor:
    ctx.save_for_backward(x)
    return x.mul_(2) + 1


def _dirty(ctx: Any, x: Tensor) -> Tensor:
    ctx.save_for_backward(x)
    ctx.mark_dirty(x)
    return x.mul_(2)


def _slope(ctx: Any, gradient: Tensor) -> Tensor:
    return gradient * ctx.saved_tensors[0].sin()


def _scaled(ctx: Any, x: Tensor, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    return x * scale + shift


def _product(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
    ctx.save_for_backward(x, weight)
    return x @ weight


def _full_products(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    return gradient.float() @ weight.t(), x.t() @ gradient.float()


_LIST = _function(lambda ctx, x: [x * 2, x], lambda ctx, *_: None)
_DICT = _function(lambda ctx, x: {"y": x * 2}, lambda ctx, *_: None)
_CONSTANT = _function(_constant, lambda ctx, g, h, i: 5 * g + h + i)
_TWICE = _function(_twice, lambda ctx, g, h: 5 * g + 7 * h)
_WRITTEN, _DIRTY = _function(_written, _slope), _function(_dirty, _slope)
_SCALED = _function(_scaled, lambda ctx, g: (3 * g, None, None))
_PRODUCT = _function(_product, _full_products)


def _read_afterwards(kind: type[Function]) -> Body:
    def body(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = x * 3
        return kind.apply(y) * 2 + y.cos()

    return body


def _of_a_part(kind: type[Function]) -> Body:
    def body(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = x * 3
        part = kind.apply(y[:, :3])
        return torch.cat([part, part], 1) + y.cos()

    return body


def _autocast(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = _PRODUCT.apply(x, weight)
    return y.float()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda x, w, b: sum(_LIST.apply(x)), id="list"),
        pytest.param(lambda x, w, b: _DICT.apply(x)["y"] + x, id="dict"),
        pytest.param(lambda x, w, b: sum(_CONSTANT.apply(x)[:2]), id="without gradients"),
        pytest.param(lambda x, w, b: 3 * _TWICE.apply(x)[0] + _TWICE.apply(x)[1], id="twice"),
        pytest.param(_read_afterwards(_WRITTEN), id="written"),
        pytest.param(_read_afterwards(_DIRTY), id="dirty"),
        pytest.param(_of_a_part(_WRITTEN), id="a part written"),
        pytest.param(_of_a_part(_DIRTY), id="a part dirty"),
        pytest.param(lambda x, w, b: _SCALED.apply(x, shift=1.0, scale=2.0), id="by name"),
        pytest.param(_autocast, id="autocast"),
    ],
)
def test_uncommon_functions_have_their_gradients(body: Body, tmp_path: Path) -> None:
    torch.manual_seed(1)
    require_gradients_of_torch(Between(body), torch.randn(5, 4), tmp_path / "own.pef")


class _WithSetup(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ctx.saved_tensors[0]


class _Counting(Between):
    """Counts in the backward method of a function."""

    def __init__(self) -> None:
        super().__init__(lambda x, w, b: self.counting.apply(x))
        self.register_buffer("count", torch.zeros(6))

    @property
    def counting(self) -> type[Function]:
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            self.count[:3] += gradient.sum()
            return gradient

        return _function(lambda ctx, x: x * 2, backward)


def _chosen(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda y: _WithSetup.apply(y), torch.sin, (x,))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (_Counting(), r"Made, .* writes in backward what is there outside of it"),
        (
            Between(lambda x, w, b: torch.vmap(_WithSetup.apply)(x)),
            r"_WithSetup, .* is called inside torch\.vmap",
        ),
        (
            Between(_chosen),
            r"\(autograd\.Function\) inside torch\.cond",
        ),
        (
            Between(lambda x, w, b: _function(lambda ctx, y: y * 2, lambda ctx, g: 0.0).apply(x)),
            r"Made, whose backward method returns float",
        ),
    ],
    ids=["writes backwards", "vmap", "cond", "no tensor"],
)
def test_what_cannot_be_told_is_refused(module: Between, message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message):
        stepped(module, torch.randn(5, 4), tmp_path / "refused.pef")


def test_other_threads_fill_their_own_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One trains where another is between two steps of recording the same function."""
    unwrap, here, found = functorch.unwrap_dead_wrappers, get_ident(), list[Tensor]()

    def train() -> None:
        x = torch.full((2,), 3.0, requires_grad=True)
        found.extend(torch.autograd.grad(_WithSetup.apply(x).sum(), x))

    def unwrap_late(args: tuple[Any, ...]) -> tuple[Any, ...]:
        if get_ident() == here:
            thread = Thread(target=train)
            thread.start()
            thread.join()
        return unwrap(args)

    monkeypatch.setattr(functorch, "unwrap_dead_wrappers", unwrap_late)
    training_source(Between(lambda x, w, b: _WithSetup.apply(x)), torch.randn(5, 4))
    assert found
    assert all(torch.equal(one, torch.full((2,), 3.0)) for one in found)
