"""Gradients of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from gradient_check import Case, check_against_torch, check_finite_differences

from sambac.ops import gradient_of, undifferentiable

torch = pytest.importorskip("torch")
rng = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return np.asarray(rng.normal(size=shape))


def product(label: str, left: tuple[int, ...], right: tuple[int, ...]) -> Case:
    return Case("MatMul", (normal(*left), normal(*right)), torch.matmul, label=label)


def gemm(label: str, c: tuple[int, ...] | None, **attributes: float) -> Case:
    """A is 4 by 5 and B is 5 by 3, or the other way round where an attribute says so."""
    a = normal(5, 4) if attributes.get("transA") else normal(4, 5)
    b = normal(3, 5) if attributes.get("transB") else normal(5, 3)

    def formula(a, b, c=None):
        a = a.T if attributes.get("transA") else a
        b = b.T if attributes.get("transB") else b
        made = attributes.get("alpha", 1.0) * (a @ b)
        return made if c is None else made + attributes.get("beta", 1.0) * c

    inputs = (a, b) if c is None else (a, b, normal(*c))
    return Case("Gemm", inputs, formula, attributes, label=label)


def fused_matmul(
    label: str, left: tuple[int, ...], right: tuple[int, ...], **attributes: Any
) -> Case:
    def formula(x, y):
        for name, turn in (
            ("transBatch", lambda v: v.movedim(0, -2)),
            ("trans", lambda v: v.transpose(-1, -2)),
        ):
            x = turn(x) if attributes.get(f"{name}A") else x
            y = turn(y) if attributes.get(f"{name}B") else y
        return attributes.get("alpha", 1.0) * (x @ y)

    return Case(
        "FusedMatMul",
        (normal(*left), normal(*right)),
        formula,
        attributes,
        label=label,
        domain="com.microsoft",
        without_finite_differences="the reference lacks it",
    )


def fused_gemm(activation: str, function: Callable[..., Any], **attributes: Any) -> Case:
    return Case(
        "FusedGemm",
        (normal(4, 5), normal(3, 5), normal(3)),
        lambda a, b, c: function(0.5 * a @ b.T + c),
        {"transB": 1, "alpha": 0.5, "activation": activation, **attributes},
        label=activation,
        domain="com.microsoft",
        without_finite_differences="the reference lacks it",
    )


def einsum(equation: str, *shapes: tuple[int, ...], torch_way: str | None = None) -> Case:
    return Case(
        "Einsum",
        tuple(normal(*shape) for shape in shapes),
        lambda *x: torch.einsum(torch_way or equation, *x),
        {"equation": equation},
        label=equation.replace(" ", ""),
    )


def det(label: str, x: np.ndarray) -> Case:
    return Case("Det", (x,), torch.linalg.det, label=label)


FUSED = [
    fused_matmul("plain", (2, 4, 5), (5, 3), alpha=0.5),
    fused_matmul("transA", (2, 5, 4), (2, 5, 3), transA=1),
    fused_matmul("transB", (2, 3, 4, 5), (2, 3, 6, 5), transB=1, alpha=0.25),
    fused_matmul("both", (5, 4), (3, 5), transA=1, transB=1),
    fused_matmul("broadcast", (2, 5, 4), (1, 3, 5), transA=1, transB=1),
    fused_matmul("fewer-axes", (2, 4, 5), (3, 5), transB=1),
    fused_matmul("batches", (4, 3, 5), (5, 3, 6), transBatchA=1, transBatchB=1),
    fused_matmul("batch-and-rows", (5, 3, 2, 4), (3, 2, 5, 6), transBatchA=1, transA=1),
    fused_gemm("Relu", torch.relu),
    fused_gemm("LeakyRelu", lambda z: torch.where(z > 0, z, 0.2 * z), activation_alpha=0.2),
    fused_gemm("Sigmoid", torch.sigmoid),
    fused_gemm("Tanh", torch.tanh),
]

EINSUMS = [
    einsum("ij, jk -> ik", (2, 3), (3, 4)),
    einsum("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    einsum("ij,ik,il->jkl", (2, 3), (2, 4), (2, 5)),
    einsum("ji,kj", (2, 3), (4, 2)),
    einsum("bA,Ac", (2, 3), (3, 4)),
    einsum("ij->ji", (2, 3)),
    einsum("ij->i", (2, 3)),
    einsum("ij->", (2, 3)),
    einsum("ij,k->i", (2, 3), (4,)),
    einsum("i,i->", (3,), (3,)),
    einsum("i,j->ij", (3,), (4,)),
    einsum("ii->i", (3, 3)),
    einsum("ii->", (3, 3)),
    einsum("iji->j", (3, 2, 3)),
    einsum("ijj,j->ij", (2, 3, 3), (3,)),
    einsum("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    einsum("...ij,...jk", (2, 3, 4), (2, 4, 5)),
    einsum("...ij,jk", (2, 3, 4), (4, 5)),
    einsum("...ij,...jk->...ik", (5, 1, 3, 4), (5, 2, 4, 5)),
    einsum("...i,...i->...", (2, 3, 4), (2, 3, 4)),
    einsum("...ii->...i", (2, 3, 3)),
    einsum("i...->...", (2, 3, 4)),
    einsum("aij,ajk->aik", (2, 3, 4), (1, 4, 5), torch_way="aij,bjk->aik"),
    einsum("ij,jk->ik", (2, 3), (1, 4), torch_way="ij,ak->ik"),
]


def sarrus(x):
    down = x[0, 0] * x[1, 1] * x[2, 2] + x[0, 1] * x[1, 2] * x[2, 0] + x[0, 2] * x[1, 0] * x[2, 1]
    up = x[2, 0] * x[1, 1] * x[0, 2] + x[2, 1] * x[1, 2] * x[0, 0] + x[2, 2] * x[1, 0] * x[0, 1]
    return down - up


DETERMINANTS = [
    det("one", normal(2, 1, 1)),
    det("two", normal(2, 2)),
    det("batch", normal(2, 3, 4, 4)),
    # Here the gradient that torch has is zero, which it is not.
    Case("Det", (np.array([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]]),), sarrus, label="singular"),
]

CASES = [
    product("matrices", (4, 5), (5, 3)),
    product("vectors", (5,), (5,)),
    product("vector-matrix", (5,), (5, 3)),
    product("matrix-vector", (4, 5), (5,)),
    product("vector-batch", (5,), (2, 5, 3)),
    product("batch-vector", (2, 3, 4, 5), (5,)),
    product("batch-matrix", (2, 4, 5), (5, 3)),
    product("batch-one", (2, 6, 4, 5), (1, 5, 3)),
    product("matrix-batch", (4, 5), (2, 5, 3)),
    product("matrix-one", (4, 5), (1, 5, 3)),
    product("batches", (2, 3, 4, 5), (2, 3, 5, 6)),
    product("broadcast", (2, 1, 4, 5), (3, 5, 6)),
    product("broadcast-both", (2, 1, 4, 5), (1, 3, 5, 6)),
    gemm("plain", None),
    gemm("row", (3,)),
    gemm("row-2d", (1, 3), beta=0.5),
    gemm("column", (4, 1), beta=-2.0),
    gemm("scalar", ()),
    gemm("whole", (4, 3), alpha=0.25),
    gemm("transA", (3,), transA=1, alpha=1.5),
    gemm("transB", (3,), transB=1),
    gemm("both", (1, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    *FUSED,
    *EINSUMS,
    *DETERMINANTS,
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finite_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch(case: Case):
    check_against_torch(case)


def test_what_has_no_gradient_says_why():
    domain, inputs = "com.microsoft", [ir.val(n, ir.DataType.FLOAT, (40, 40)) for n in "ab"]
    gemm = ir.node("FusedGemm", inputs, {"activation": "Softplus"}, domain=domain)
    assert "Softplus" in str(undifferentiable(gemm))
    assert gradient_of(gemm) is None
    assert "40 x 40" in str(undifferentiable(ir.node("Det", inputs[:1])))
