"""Linear algebra and common divisors that are written out: numbers and gradients are torch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch_runs import Lambda

import sambarun
from sambac import SGD, CompileOptions, compile
from sambac.errors import CompileError
from sambac.frontend.torch.programs.divisors import DIVISORS
from sambac.frontend.torch.programs.elimination import elimination

_aten = torch.ops.aten
_G = torch.Generator().manual_seed(3)
_Call = Callable[..., torch.Tensor]


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_G, dtype=torch.float64)


def _definite(*shape: int) -> torch.Tensor:
    a = _drawn(*shape, shape[-1])
    return a @ a.mT + torch.eye(shape[-1])


_SHIFTED = torch.eye(4, dtype=torch.float64).roll(1, 0) + _drawn(4, 4) / 10
"""Without an exchange of rows this has no elimination."""

_CALLS = {
    "inverse": (_aten.linalg_inv.default, (_drawn(2, 3, 3),), {}),
    "of a shift": (_aten.inverse.default, (_SHIFTED,), {}),
    "of one": (_aten.linalg_inv.default, (_drawn(3, 1, 1),), {}),
    "solution": (_aten.linalg_solve.default, (_drawn(2, 4, 4), _drawn(2, 4, 3)), {}),
    "of a vector": (_aten.linalg_solve.default, (_SHIFTED, _drawn(4)), {}),
    "of vectors": (_aten.linalg_solve.default, (_drawn(2, 4, 4), _drawn(2, 4)), {}),
    "from the right": (_aten.linalg_solve.default, (_SHIFTED, _drawn(3, 4)), {"left": False}),
    "determinant": (_aten.linalg_slogdet.default, (_drawn(5, 4, 4),), {}),
    "of an odd shift": (_aten.slogdet.default, (_SHIFTED,), {}),
    "factor": (_aten.linalg_cholesky.default, (_definite(2, 4),), {}),
    "upper factor": (_aten.cholesky.default, (_definite(3), True), {}),
    "triangle": (
        _aten.linalg_solve_triangular.default, (_drawn(2, 4, 4), _drawn(4, 3)), {"upper": True},
    ),
    "triangle of ones": (
        _aten.linalg_solve_triangular.default,
        (_drawn(4, 4), _drawn(3, 4)),
        {"upper": False, "left": False, "unitriangular": True},
    ),
    "older triangle": (_aten.triangular_solve.default, (_drawn(4, 2), _SHIFTED, True, True), {}),
    "by its factor": (_aten.cholesky_solve.default, (_drawn(4, 2), _drawn(4, 4).tril()), {}),
    "inverse by its factor": (_aten.cholesky_inverse.default, (_drawn(4, 4).triu(), True), {}),
    "reflections": (_aten.linalg_householder_product.default, (_drawn(2, 5, 3), _drawn(2, 3)), {}),
    "power": (_aten.linalg_matrix_power.default, (_drawn(2, 3, 3), 5), {}),
    "no power": (_aten.linalg_matrix_power.default, (_drawn(3, 3), 0), {}),
    "inverse power": (_aten.linalg_matrix_power.default, (_SHIFTED, -3), {}),
    "inverse of a tensor": (_aten.linalg_tensorinv.default, (_drawn(6, 2, 3), 1), {}),
    "solution of tensors": (
        _aten.linalg_tensorsolve.default, (_drawn(6, 2, 3), _drawn(2, 3), [0]), {},
    ),
    "inverse of nothing": (_aten.linalg_inv.default, (_drawn(2, 0, 0),), {}),
    "solution of nothing": (_aten.linalg_solve.default, (_drawn(0, 0), _drawn(0, 3)), {}),
    "determinant of nothing": (_aten.linalg_slogdet.default, (_drawn(2, 0, 0),), {}),
    "factor of nothing": (_aten.linalg_cholesky.default, (_drawn(0, 0),), {}),
}  # fmt: skip


_HALVES = {"by its factor": torch.tril, "inverse by its factor": torch.triu}
"""What is read of the last matrix: PyTorch has gradients of the other half, too."""


@pytest.mark.parametrize("name", _CALLS)
def test_numbers_and_gradients_are_those_of_torch(name: str) -> None:
    operator, given, settings = _CALLS[name]
    results = []
    for function in (elimination(1)[operator], operator):
        args = [
            one.detach().clone().requires_grad_() if isinstance(one, torch.Tensor) else one
            for one in given
        ]
        half = _HALVES.get(name)
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        read = [half(one) if half and one is tensors[-1] else one for one in args]
        made = function(*read, **settings)
        found = [made] if isinstance(made, torch.Tensor) else [*made]
        total = sum(
            (each * torch.arange(1, 1 + each.numel()).view_as(each)).sum() for each in found
        )
        total = total + 0 * tensors[0].sum()
        gradients = torch.autograd.grad(total, tensors, allow_unused=True, materialize_grads=True)
        results.append((found, gradients))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("kind", [_aten.linalg_inv_ex.default, _aten.linalg_cholesky_ex.default])
def test_what_has_none_is_told_by_its_info(kind: Callable[..., object]) -> None:
    matrices = torch.tensor([[[1.0, 2.0], [2.0, 4.0]], [[2.0, 1.0], [1.0, 2.0]]])
    _, info = elimination(1)[kind](
        matrices - torch.eye(2) * (kind is _aten.linalg_cholesky_ex.default)
    )
    assert (info > 0).tolist() == [True, kind is _aten.linalg_cholesky_ex.default]


def test_determinants_of_singular_matrices_are_nothing() -> None:
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    given = torch.stack([singular, torch.zeros(2, 2), torch.eye(2) * 3])
    found = elimination(1)[_aten.linalg_slogdet.default](given)
    torch.testing.assert_close(found, (*torch.linalg.slogdet(given),))


class _Gaussian(nn.Module):
    """The likelihood of what is normally distributed, whose covariance is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.root = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.eye(3) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        covariance = self.root @ self.root.mT + 0.1 * torch.eye(3, dtype=x.dtype)
        normal = torch.distributions.MultivariateNormal(self.mean, covariance)
        away = (x - self.mean).unsqueeze(-1)
        share = (away * torch.linalg.solve(covariance, away)).mean()
        return share - normal.log_prob(x).mean() + torch.linalg.slogdet(covariance)[1]


def test_a_distribution_is_learnt() -> None:
    module, x = _Gaussian(), torch.linspace(-3, 2, 12).reshape(4, 3).sin()
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    with sambarun.load(compile(module, options, inputs=(x,))) as executable:
        begin = executable.state()
        (loss,) = executable.step({"x": x.numpy()}).values()
        found = {name: begin[name] - now for name, now in executable.state().items()}
    expected = module.double()(exactly(x))
    expected.backward()
    assert_near(loss, expected.detach().numpy())
    for name, parameter in module.named_parameters():
        assert_near(found[name], parameter.grad.numpy(), what=name)


def test_large_matrices_are_refused() -> None:
    says = r"torch.linalg.inv of 17 rows has no ONNX form; that of at most 16 rows is written out"
    says += ": take smaller blocks, or compute it outside of the model$"
    with pytest.raises(CompileError, match=says):
        compile(Lambda(torch.linalg.inv), inputs=(torch.eye(17),))


def test_least_squares_are_refused_with_what_does() -> None:
    says = r"lstsq has no ONNX form; .* torch.linalg.solve\(A.mT @ A, A.mT @ B\) gives the same"
    with pytest.raises(CompileError, match=says):
        compile(Lambda(lambda a: torch.linalg.lstsq(a, a[:, :1])[0]), inputs=(torch.ones(4, 2),))


@pytest.mark.parametrize(
    ("compute", "says"),
    [
        (torch.linalg.pinv, r"torch.linalg.solve\(A.mT @ A, A.mT\) gives the same"),
        (lambda a: torch.linalg.qr(a)[0], r"R = torch.linalg.cholesky\(A.mT @ A\).mT"),
        (torch.linalg.svdvals, "singular values have no ONNX form; compute them outside"),
        (torch.linalg.eigvalsh, "^(.*)eigenvalues and singular values have no ONNX form"),
        (torch.linalg.matrix_exp, "a few terms of its series"),
    ],
)
def test_other_decompositions_are_refused_with_what_does(
    compute: Callable[[torch.Tensor], torch.Tensor], says: str
) -> None:
    with pytest.raises(CompileError, match=says):
        compile(Lambda(compute), inputs=(torch.eye(2),))


_WHOLE = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


@pytest.mark.parametrize("dtype", _WHOLE, ids=str)
@pytest.mark.parametrize("operator", DIVISORS, ids=str)
def test_divisors_are_those_of_torch(operator: _Call, dtype: torch.dtype) -> None:
    most = torch.iinfo(dtype).max
    fibonacci = [1, 1]
    while sum(fibonacci[-2:]) <= most:
        fibonacci.append(sum(fibonacci[-2:]))
    a = torch.tensor([0, 0, 12, 18, 7, fibonacci[-1], most, 100], dtype=dtype)
    b = torch.tensor([0, 5, 8, 27, 0, fibonacci[-2], most, 75], dtype=dtype)
    for one in (a, a[:, None], -a if dtype.is_signed else a):
        torch.testing.assert_close(DIVISORS[operator](one, b), operator(one, b))


@pytest.mark.parametrize("operator", DIVISORS, ids=str)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.tensor([6, 200], dtype=torch.uint8), torch.tensor(-300)),
        (torch.tensor(12), torch.tensor([[8], [-18]], dtype=torch.int16)),
        (torch.tensor(6, dtype=torch.uint8), torch.tensor(18)),
        (torch.tensor([100, -7], dtype=torch.int8), torch.tensor([200, 49], dtype=torch.uint8)),
    ],
)
def test_divisors_of_two_types_have_that_of_torch(
    operator: _Call, a: torch.Tensor, b: torch.Tensor
) -> None:
    torch.testing.assert_close(DIVISORS[operator](a, b), operator(a, b))
    torch.testing.assert_close(DIVISORS[operator](b, a), operator(b, a))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16], ids=str)
def test_the_least_number_has_divisors(dtype: torch.dtype) -> None:
    least, others = torch.iinfo(dtype).min, torch.tensor([6, 8, -7, 0], dtype=dtype)
    for pair in ((torch.tensor([least], dtype=dtype), others), (others, torch.tensor(least))):
        assert DIVISORS[_aten.gcd.default](*pair).tolist() == [2, 8, 1, least]


def test_compositions_run() -> None:
    module = Lambda(lambda a: torch.linalg.tensorinv(a, ind=1))
    a = _drawn(4, 2, 2).float()
    with sambarun.load(compile(module, inputs=(a,))) as executable:
        (port,) = executable.program.graphs[0].inputs
        (found,) = executable.run({port.name: a.numpy()}).values()
    assert_near(found, torch.linalg.tensorinv(a.double(), ind=1), 1e-4)


@pytest.mark.parametrize("function", [torch.gcd, torch.lcm])
def test_divisors_run(function: _Call) -> None:
    a = torch.tensor([[12], [-18], [0], [1071]], dtype=torch.int32)
    b = torch.tensor([8, 0, 462], dtype=torch.int32)
    with sambarun.load(compile(Lambda(lambda a: function(a, b)), inputs=(a,))) as executable:
        (port,) = executable.program.graphs[0].inputs
        (found,) = executable.run({port.name: a.numpy()}).values()
    np.testing.assert_array_equal(found, function(a, b).numpy())
