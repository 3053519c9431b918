"""Derivatives that torch.func takes inside forward are those of PyTorch, and train as they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from derivative_steps import Function, Taking, require_steps_of_torch, require_values_of_torch
from torch import Tensor, func, vmap
from torch.nn import functional

import sambac
import sambarun

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


def _without_gradients(w: Tensor, x: Tensor) -> Tensor:
    """A transform differentiates where gradients are off, and what it gives has none."""
    with torch.no_grad():
        found, (value, kept) = func.grad_and_value(lambda v: (_energy(w, v), v @ w), has_aux=True)(
            x
        )
        pulled = func.vjp(lambda v: v @ w, x)[0]
        pushed = func.jvp(lambda v: v @ w, (x,), (x,))[1]
        curved = func.hessian(lambda v: _energy(w, v))(x[0])
    return ((found + kept + pulled + pushed + curved[:3]) * w[0]).sum() * value


def _of_a_constant(w: Tensor, x: Tensor) -> Tensor:
    """Rows of zeros for what is not used, inside of vmap too."""
    pair = func.jacrev(lambda u, v: (u @ w).tanh(), argnums=(0, 1))(x[0], x[1])
    zeros = func.jacfwd(lambda v: w[0])(x[0])
    return (pair[0].square() + pair[1] + zeros).sum() * pair[1].shape[1]


def _axes_elsewhere(w: Tensor, x: Tensor) -> Tensor:
    """What is mapped leaves with its axis at another place than where the function left it."""
    factors = torch.arange(1, 13, dtype=x.dtype)
    behind, number = vmap(lambda v: (v @ w, w.sum()), out_dims=(-1, None))(x)
    front = vmap(lambda v: v.sin(), in_dims=1)(x @ w)
    products = vmap(lambda v: w @ v)(x)
    slopes = vmap(func.grad(lambda v: _energy(w, v)), out_dims=1)(x)
    inner = vmap(vmap(torch.mul, in_dims=(0, None), out_dims=1), out_dims=2)(x.T[:3], x.T[:3])
    whole = behind * number + front + slopes + products.T + inner[:, 0, :, None].sum((1, 2))[0]
    return (whole.reshape(-1) * factors).sin().sum()


def _pulled_without_gradients(w: Tensor, x: Tensor) -> Tensor:
    """What is asked for a graph has one where gradients are off, and nothing else."""
    value, pull = func.vjp(lambda v: (v @ w).tanh(), x)
    with torch.no_grad():
        constant, (kept,) = pull(value)[0], pull(value.cos(), create_graph=True)
    return (constant * kept.sin()).sum()


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
    "without gradients": _without_gradients,
    "of a constant": _of_a_constant,
    "axes elsewhere": _axes_elsewhere,
    "pulled without gradients": _pulled_without_gradients,
}


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_are_those_of_pytorch(form: str, tmp_path: Path) -> None:
    module = Taking(FORMS[form])
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


def _gradients_of_rows(w: Tensor, x: Tensor) -> Tensor:
    """Gradients for each row, through a normalisation, of which PyTorch gets the next ones wrong.

    float64 takes them row by row.
    """

    def energy(w: Tensor, v: Tensor) -> Tensor:
        h = functional.layer_norm((v @ w)[None], [4], w[1], w[2])
        return functional.group_norm(h.sin().reshape(1, 4, 1), 2, w[0], w[3]).sin().sum()

    if x.dtype == torch.float32:
        return vmap(func.grad(energy), in_dims=(None, 0))(w, x).square().sum()
    rows = [torch.autograd.grad(energy(w, v), w, create_graph=True)[0] for v in x]
    return torch.stack(rows).square().sum()


def test_normalisations_for_each_row(tmp_path: Path) -> None:
    module = Taking(_gradients_of_rows)
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


def test_sizes_of_what_is_mapped_stay_open() -> None:
    module = Taking(lambda w, x: vmap(func.grad(lambda v: _energy(w, v)))(x)).eval()
    open_sizes = ({0: torch.export.Dim("batch", min=2, max=64)},)
    program = sambac.compile(module, inputs=(torch.randn(3, 4),), dynamic_shapes=open_sizes)
    x = torch.randn(5, 4)
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": x.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(found), module(x).detach())


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
