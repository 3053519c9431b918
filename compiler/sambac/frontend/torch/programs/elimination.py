"""Linear algebra without operators in ONNX, of matrices of few rows: elimination, written out.

    inv(A), solve(A, B)        Gauss-Jordan by the largest pivots, and one refinement;
                               tensorinv, tensorsolve are those of tensors laid out as matrices
    slogdet(A)                 of the pivots
    det(A)                     by minors, where vmap or a derivative takes the operator apart
    cholesky(A)                column by column
    solve_triangular(A, B)     row by row
    householder_product(V, t)  one reflection after the other

Inverses and determinants have the gradients that their formulas say, not those of each step, with
Z = inv(A) and c as constants:

    X = Z B + Z E B + Z E^2 B + ...,  E = I - A Z         ->    dX = Z (dB - dA X)
    log |det A| = c - tr E - tr E^2 / 2 - ...,  E = I - Z A

E is 0 but for its derivatives: each term more makes those of one order more right, as where forward
takes some that are differentiated again.

PyTorch raises an error where a matrix to invert is singular, or one is not positive definite; a
program gives what is no number. The determinant of a singular one is 0 in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._library import simple_registry

from sambac.errors import CompileError
from sambac.frontend.torch.patching import replaced

_aten = torch.ops.aten
_CHECK, _CHECK_NAME = _aten._linalg_check_errors.default, "aten::_linalg_check_errors"
_MOST = 16
"""Rows of the largest matrix that is written out: each is a dozen operators."""
_MOST_OF_MINORS = 6
"""The same where there are 6! / 2 minors of two rows."""


class _Reduced(NamedTuple):
    """What elimination leaves of [A, B]: inv(A) B, the pivots, and whether rows were exchanged."""

    result: Tensor
    pivots: Tensor
    exchanged: Tensor


@contextmanager
def unchecked() -> Iterator[None]:
    """Let nothing look for matrices for which there is an error, as functions under `vmap` do.

    PyTorch would keep that look, as it may raise one.
    """
    effect = simple_registry.singleton.find(_CHECK_NAME).effect
    with replaced(effect, "_effect", None):
        yield


def _looked_at(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Raise no error: what is no number shows in results."""


def _require_few(name: str, rows: int, most: int = _MOST, where: str = "") -> None:
    if rows > most:
        raise CompileError(
            f"torch.linalg.{name} of {rows} rows {where}has no ONNX form; that of at most {most} "
            "rows is written out: take smaller blocks, or compute it outside of the model"
        )


def _identity(like: Tensor) -> Tensor:
    eye = torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
    return eye.expand(like.shape)


def _reduced(matrix: Tensor, beside: Tensor) -> _Reduced:
    rows, count = torch.arange(matrix.shape[-1], device=matrix.device), matrix.shape[-1]
    both, pivots, exchanged = torch.cat((matrix, beside), -1), [], []
    for at in range(count):
        best = both[..., at:, at].abs().argmax(-1, keepdim=True) + at
        order = torch.where(rows == at, best, torch.where(rows == best, at, rows))
        both = both.gather(-2, order.unsqueeze(-1).expand(both.shape))
        pivot = both[..., at : at + 1, at : at + 1]
        row = both[..., at : at + 1, :] / pivot
        others = both - both[..., at : at + 1] * row
        both = torch.where((rows == at).unsqueeze(-1), row, others)
        pivots.append(pivot[..., 0])
        exchanged.append(best != at)
    if not count:
        return _Reduced(beside, matrix.sum(-1), matrix.any(-1))
    return _Reduced(both[..., count:], torch.cat(pivots, -1), torch.cat(exchanged, -1))


def _constant_inverse(matrix: Tensor) -> Tensor:
    fixed = matrix.detach()
    return _reduced(fixed, _identity(fixed)).result


def _info(result: Tensor) -> Tensor:
    """Return 0 for each matrix of numbers, else 1."""
    return result.isfinite().all(-1).all(-1).logical_not().to(torch.int32)


def _inverse(a: Tensor, *, check_errors: bool = False, order: int = 1) -> tuple[Tensor, Tensor]:
    _require_few("inv", a.shape[-1])
    found = inverse = _constant_inverse(a)
    apart = _identity(a) - a @ inverse
    for _ in range(order):
        found = inverse + found @ apart
    return found, _info(found)


def _solution(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False, order: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _require_few("solve", a.shape[-1])
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    matrix, right = (a, b.unsqueeze(-1) if vector else b) if left else (a.mT, b.mT)
    inverse = _constant_inverse(matrix)
    found = inverse @ right
    for _ in range(order):
        found = found + inverse @ (right - matrix @ found)
    result = found.squeeze(-1) if vector else found if left else found.mT
    # The factors are for PyTorch's gradients alone.
    return result, a, torch.ones(a.shape[:-1], dtype=torch.int32), _info(inverse)


def _inverse_alone(a: Tensor, *, order: int = 1) -> Tensor:
    return _inverse(a, order=order)[0]


def _power(a: Tensor, n: int, *, order: int = 1) -> Tensor:
    factor, found = (a if n >= 0 else _inverse_alone(a, order=order)), _identity(a)
    for bit in bin(abs(n))[2:]:
        found = found @ found
        found = found @ factor if bit == "1" else found
    return found


def _solved(a: Tensor, b: Tensor, *, left: bool = True, order: int = 1) -> Tensor:
    return _solution(a, b, left=left, order=order)[0]


def _solved_and_looked_at(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False, order: int = 1
) -> tuple[Tensor, Tensor]:
    result, _, _, info = _solution(a, b, left=left, order=order)
    return result, info


def _determinant(a: Tensor, *, order: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _require_few("slogdet", a.shape[-1])
    fixed = a.detach()
    inverse, pivots, exchanged = _reduced(fixed, _identity(fixed))
    odd = (pivots < 0).logical_xor(exchanged).to(torch.int64).sum(-1) % 2
    singular = (pivots == 0).any(-1)
    sign = torch.where(singular, 0, 1 - 2 * odd).to(a.dtype)
    trace = _traces(_identity(a) - inverse @ a, order)
    logarithm = pivots.abs().log().sum(-1) - (trace - trace.detach())
    logarithm = torch.where(singular, -torch.inf, logarithm)
    return sign, logarithm, a, torch.ones(a.shape[:-1], dtype=torch.int32)


def _traces(apart: Tensor, order: int) -> Tensor:
    """Return -log |det (I - E)|, of a small E, to this order: tr E + tr E^2 / 2 + ..."""
    power, found = apart, apart.diagonal(dim1=-2, dim2=-1).sum(-1)
    for at in range(2, order + 1):
        power = power @ apart
        found = found + power.diagonal(dim1=-2, dim2=-1).sum(-1) / at
    return found


def _determinant_alone(a: Tensor, *, order: int = 1) -> tuple[Tensor, Tensor]:
    return _determinant(a, order=order)[:2]


def _logarithm(a: Tensor, *, order: int = 1) -> Tensor:
    sign, logarithm = _determinant_alone(a, order=order)
    return logarithm + torch.where(sign < 0, torch.nan, 0.0).to(a.dtype)


def _by_minors(a: Tensor) -> Tensor:
    """Return the determinant as a polynomial, whose derivatives are right where it is 0, too."""
    rows = a.shape[-1]
    _require_few("det", rows, _MOST_OF_MINORS, "under vmap, or differentiated in forward, ")
    if rows == 0:
        return a.sum((-2, -1)) + 1
    if rows == 1:
        return a[..., 0, 0]
    left, others = torch.arange(rows), torch.arange(rows - 1)
    others = others + (others >= left.unsqueeze(-1)).to(torch.int64)  # all but those left out
    taken = a[..., 1:, :].index_select(-1, others.reshape(-1))
    minors = _by_minors(taken.reshape(*taken.shape[:-1], rows, rows - 1).movedim(-2, -3))
    signs = (1 - 2 * (left % 2)).to(a.dtype)
    return (a[..., 0, :] * signs * minors).sum(-1)


def _by_minors_alone(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # The factors are for PyTorch's gradients alone.
    return _by_minors(a), a, torch.ones(a.shape[:-1], dtype=torch.int32)


def _cholesky(
    a: Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor]:
    _require_few("cholesky", a.shape[-1])
    lower = (a.mT if upper else a).tril()
    halves = (a + a.mT) / 2  # gradients are those of a symmetric matrix
    rest = (lower + lower.tril(-1).mT).detach() + (halves - halves.detach())
    rows, columns = torch.arange(a.shape[-1], device=a.device).unsqueeze(-1), []
    for at in range(a.shape[-1]):
        column = torch.where(rows >= at, rest[..., at : at + 1], 0)
        column = column / column[..., at : at + 1, :].sqrt()
        rest = rest - column @ column.mT
        columns.append(column)
    found = torch.cat(columns, -1) if columns else a
    return found.mT if upper else found, _info(found)


def _factor(a: Tensor, upper: bool = False) -> Tensor:
    return _cholesky(a, upper=upper)[0]


def _triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    _require_few("solve_triangular", a.shape[-1])
    if not left:
        settings = {"upper": not upper, "unitriangular": unitriangular}
        return _triangular(a.mT, b.mT, **settings).mT
    if upper:
        return _triangular(
            a.flip(-2, -1), b.flip(-2), upper=False, unitriangular=unitriangular
        ).flip(-2)
    found: list[Tensor] = []
    for at in range(a.shape[-1]):
        row = b[..., at : at + 1, :]
        if found:
            row = row - a[..., at : at + 1, :at] @ torch.cat(found, -2)
        found.append(row if unitriangular else row / a[..., at : at + 1, at : at + 1])
    rows: list[Tensor] = torch.broadcast_tensors(*found)  # type: ignore[no-untyped-call]  # torch's
    return torch.cat(rows, -2) if found else b


def _triangular_solution(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    matrix, upper = (a.mT, not upper) if transpose else (a, upper)
    return _triangular(matrix, b, upper=upper, unitriangular=unitriangular), a.clone()


def _by_factor(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    lower = factor.mT if upper else factor
    return _triangular(lower.mT, _triangular(lower, b, upper=False), upper=True)


def _inverse_by_factor(factor: Tensor, upper: bool = False) -> Tensor:
    return _by_factor(_identity(factor), factor, upper)


def _reflections(v: Tensor, tau: Tensor) -> Tensor:
    _require_few("householder_product", v.shape[-1])
    rows = torch.arange(v.shape[-2], device=v.device).unsqueeze(-1)
    found = (rows == torch.arange(v.shape[-1], device=v.device)).to(v.dtype).expand(v.shape)
    for at in reversed(range(tau.shape[-1])):
        below = torch.where(rows > at, v[..., at : at + 1], (rows == at).to(v.dtype))
        found = found - tau[..., at : at + 1].unsqueeze(-1) * below @ (below.mT @ found)
    return found


def _tensor_inverse(a: Tensor, ind: int = 2, *, order: int = 1) -> Tensor:
    result, rows = (*a.shape[ind:], *a.shape[:ind]), prod(a.shape[:ind])
    return _inverse_alone(a.reshape(rows, -1), order=order).reshape(result)


def _tensor_solution(
    a: Tensor, b: Tensor, dims: Sequence[int] | None = None, *, order: int = 1
) -> Tensor:
    if dims is not None:
        a = a.movedim(tuple(dims), tuple(range(a.dim() - len(dims), a.dim())))
    rows = prod(b.shape)
    found = _solved(a.reshape(rows, rows), b.reshape(rows), order=order)
    return found.reshape(a.shape[b.dim() :])


_BY_INVERSES: Mapping[Callable[..., object], Callable[..., Any]] = {
    **dict.fromkeys((_aten.linalg_inv.default, _aten.inverse.default), _inverse_alone),
    **dict.fromkeys((_aten.linalg_slogdet.default, _aten.slogdet.default), _determinant_alone),
    **dict.fromkeys((_aten.linalg_matrix_power.default, _aten.matrix_power.default), _power),
    _aten.linalg_solve.default: _solved,
    _aten.linalg_solve_ex.default: _solved_and_looked_at,
    _aten.linalg_inv_ex.default: _inverse,
    _aten._linalg_solve_ex.default: _solution,
    _aten._linalg_slogdet.default: _determinant,
    _aten.linalg_tensorinv.default: _tensor_inverse,
    _aten.linalg_tensorsolve.default: _tensor_solution,
}
"""What has the derivatives that a series has, up to some order."""

_STEP_BY_STEP: Mapping[Callable[..., object], Callable[..., Any]] = {
    **dict.fromkeys((_aten.linalg_cholesky.default, _aten.cholesky.default), _factor),
    _CHECK: _looked_at,
    _aten._linalg_det.default: _by_minors_alone,
    _aten.linalg_cholesky_ex.default: _cholesky,
    _aten.linalg_solve_triangular.default: _triangular,
    _aten.triangular_solve.default: _triangular_solution,
    _aten.cholesky_solve.default: _by_factor,
    _aten.cholesky_inverse.default: _inverse_by_factor,
    _aten.linalg_householder_product.default: _reflections,
}


def elimination(order: int) -> Mapping[Callable[..., object], Callable[..., Any]]:
    """Return what operators of linear algebra become, with right derivatives up to an order.

    Determinants that stay operators have derivatives of the first order.
    """
    table: dict[Callable[..., object], Callable[..., Any]] = {
        op: partial(formula, order=order) for op, formula in _BY_INVERSES.items()
    }
    table |= _STEP_BY_STEP
    if order > 1:
        table |= dict.fromkeys((_aten.linalg_det.default, _aten.det.default), _by_minors)
        table[_aten.logdet.default] = partial(_logarithm, order=order)
    return table
