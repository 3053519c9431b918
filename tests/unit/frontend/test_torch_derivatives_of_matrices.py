"""Derivatives through linear algebra, which elimination stands for, and functions under vmap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from derivative_steps import Function, Taking, X, require_steps_of_torch, require_values_of_torch
from torch import Tensor, func, vmap
from torch.autograd import grad

import sambac
from sambac.errors import CompileError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")

_EYE = torch.eye(4)


def _matrices(w: Tensor, x: Tensor) -> Tensor:
    """Return a matrix for each row that none is far from inverting."""
    return 2 * _EYE + 0.3 * w + 0.1 * x.unsqueeze(-1) * x.unsqueeze(-2)


def _definite(w: Tensor, x: Tensor) -> Tensor:
    matrix = _matrices(w, x)
    return matrix @ matrix.mT


OF_MATRICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "inv": lambda a, x: torch.linalg.inv(a),
    "inverse of a kind": lambda a, x: torch.linalg.inv_ex(a)[0],
    "solve": torch.linalg.solve,
    "solve from the right": lambda a, x: torch.linalg.solve(a, a.sin(), left=False),
    "slogdet": lambda a, x: torch.linalg.slogdet(a)[1],
    "logdet": lambda a, x: torch.logdet(a),
    # Halved, or the slopes of a sine of it are lost in its rounding.
    "det": lambda a, x: torch.linalg.det(a / 2),
    "negative power": lambda a, x: torch.linalg.matrix_power(a, -2),
    "cholesky": lambda a, x: torch.linalg.cholesky(a @ a.mT),
    "triangular": lambda a, x: torch.linalg.solve_triangular(a.tril(), a, upper=False),
}


def _once(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    def taken(w: Tensor, x: Tensor) -> Tensor:
        a = _matrices(w, x)
        return grad(function(a, x).sin().sum(), a, create_graph=True)[0].square().sum()

    return taken


def _twice(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    def taken(w: Tensor, x: Tensor) -> Tensor:
        a = _matrices(w, x)
        first = grad(function(a, x).sin().sum(), a, create_graph=True)[0]
        return grad(first.sin().sum(), a, create_graph=True)[0].square().sum()

    return taken


@pytest.mark.parametrize("name", OF_MATRICES)
def test_gradients_that_are_differentiated_again(name: str, tmp_path: Path) -> None:
    require_steps_of_torch(Taking(_once(OF_MATRICES[name])), tmp_path / "m.pef")


@pytest.mark.parametrize("name", ["inv", "solve", "slogdet", "det"])
def test_gradients_of_gradients(name: str, tmp_path: Path) -> None:
    module = Taking(_twice(OF_MATRICES[name]))
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


OF_ROWS: dict[str, Function] = {
    "det": lambda w, x: vmap(lambda v: torch.linalg.det(_matrices(w, v)))(x).sum(),
    "inv": lambda w, x: vmap(lambda v: torch.linalg.inv(_matrices(w, v)))(x).sum(),
    "solve": lambda w, x: vmap(lambda v: torch.linalg.solve(_matrices(w, v), v))(x).sum(),
    "one matrix": lambda w, x: vmap(lambda v: torch.linalg.solve(2 * _EYE + w, v))(x).sum(),
    "cholesky": lambda w, x: vmap(lambda v: torch.linalg.cholesky(_definite(w, v)))(x).sum(),
    "slopes of a solution": lambda w, x: (
        vmap(func.jacrev(lambda v: torch.linalg.solve(_matrices(w, v), v)))(x).square().sum()
    ),
    "curvature of a logarithm": lambda w, x: (
        vmap(func.jacrev(func.jacrev(lambda v: torch.logdet(_definite(w, v)))))(x).square().sum()
    ),
    "a step of Newton's": lambda w, x: (
        vmap(lambda v: v - torch.linalg.solve(*_newton(w, v)))(x).square().sum()
    ),
}


def _newton(w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    def energy(u: Tensor) -> Tensor:
        return (u @ w @ u).sin() + 3 * (u * u).sum()

    return func.hessian(energy)(v), func.grad(energy)(v)


@pytest.mark.parametrize("name", OF_ROWS)
def test_functions_of_each_row(name: str, tmp_path: Path) -> None:
    module = Taking(OF_ROWS[name])
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


def test_a_determinant_that_is_0_has_a_gradient(tmp_path: Path) -> None:
    def flat(w: Tensor, x: Tensor) -> Tensor:
        return (
            vmap(lambda v: torch.linalg.det((w + 2 * _EYE) * torch.ones(4).index_fill(0, at, 0)))(
                x
            ).sum()
            + w.sum() * 0
        )

    at = torch.tensor([1])
    require_steps_of_torch(Taking(flat), tmp_path / "m.pef")


def test_large_determinants_are_refused() -> None:
    module = Taking(
        lambda w, x: vmap(lambda v: torch.linalg.det(torch.outer(v, v).repeat(2, 2)))(x).sum()
    )
    with pytest.raises(
        CompileError, match=r"linalg\.det of 8 rows under vmap, or .* at most 6 rows"
    ):
        sambac.compile(module, inputs=(X.clone(),))
    torch.randn(1)  # which raises where vmap is left open
