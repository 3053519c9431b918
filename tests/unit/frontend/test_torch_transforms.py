"""Derivatives that torch.func takes inside forward are those of PyTorch, and train as they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from derivative_steps import Function, Taking, require_steps_of_torch, require_values_of_torch
from torch import Tensor, func, vmap

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")
"""PyTorch's own formulas of products with a direction are written in it."""


def _energy(w: Tensor, v: Tensor) -> Tensor:
    return (v @ w).tanh().sum()


def _grad(w: Tensor, x: Tensor) -> Tensor:
    found, value = func.grad_and_value(lambda v: _energy(w, v))(x)
    return found.square().sum() + value


def _by_both(w: Tensor, x: Tensor) -> Tensor:
    (of_x, of_w), (kept,) = func.grad(
        lambda v, u: (_energy(u, v), (v.exp(),)), argnums=(0, 1), has_aux=True
    )(x, w)
    return of_x.square().sum() + of_w.sin().sum() + kept.sum()


def _of_grad(w: Tensor, x: Tensor) -> Tensor:
    return func.grad(lambda v: func.grad(lambda u: _energy(w, u))(v).sin().sum())(x).square().sum()


def _of_each_row(w: Tensor, x: Tensor) -> Tensor:
    return vmap(func.grad(lambda v: _energy(w, v)))(x).square().sum()


def _of_weights_for_each_row(w: Tensor, x: Tensor) -> Tensor:
    taken = vmap(func.grad(lambda p, v: _energy(p["w"], v)), in_dims=({"w": None}, 1))
    return taken({"w": w}, x.T)["w"].square().sum()


def _jacobians(w: Tensor, x: Tensor) -> Tensor:
    backward = func.jacrev(lambda v: (v @ w).tanh(), chunk_size=2)(x[0])
    forward = func.jacfwd(lambda v: (v @ w).tanh())(x[1])
    return (backward * forward).sum()


def _hessians(w: Tensor, x: Tensor) -> Tensor:
    taken = vmap(lambda v: func.hessian(lambda u: _energy(w, u))(v).trace())
    return taken(x).square().sum()


def _products(w: Tensor, x: Tensor) -> Tensor:
    value, pushed = func.jvp(lambda v: (v @ w).tanh(), (x,), (x.sin(),))
    _, pull = func.vjp(lambda v: (v @ w).tanh(), x)
    return (value * pushed * pull(value)[0]).sum()


def _of_products(w: Tensor, x: Tensor) -> Tensor:
    def pushed(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
        found: Tensor = func.jvp(function, (at,), (torch.ones_like(at),))[1]
        return found

    return pushed(lambda v: pushed(lambda u: (u @ w).sin(), v), x).square().sum()


def _inside_of_two(w: Tensor, x: Tensor) -> Tensor:
    inner = vmap(func.grad(lambda a, b: (a * b.sin()).tanh()), in_dims=(0, None))
    return vmap(inner, in_dims=(None, 0))(x[0], x[:, 0]).square().sum() * w.sum()


FORMS: dict[str, Function] = {
    "grad": _grad,
    "by both": _by_both,
    "of grad": _of_grad,
    "of each row": _of_each_row,
    "of weights for each row": _of_weights_for_each_row,
    "jacobians": _jacobians,
    "hessians": _hessians,
    "products": _products,
    "of products": _of_products,
    "inside of two": _inside_of_two,
}


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_are_those_of_pytorch(form: str, tmp_path: Path) -> None:
    module = Taking(FORMS[form])
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


def test_a_derivative_that_nobody_takes_is_left_out() -> None:
    def prepared(w: Tensor, x: Tensor) -> Tensor:
        value, _ = func.vjp(lambda v: (v @ w).tanh(), x)
        return value.sum()

    require_values_of_torch(Taking(prepared))


def test_pytorch_is_as_it_was() -> None:
    x = torch.ones(3)
    require_values_of_torch(Taking(_of_each_row))
    assert func.grad(lambda v: (v * v).sum())(x).tolist() == [2, 2, 2]
    assert func.jvp(torch.sin, (x,), (x,))[1].tolist() == torch.cos(x).tolist()
