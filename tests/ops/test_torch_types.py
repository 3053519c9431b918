"""Functions of PyTorch with numbers, scalars and operands of several types, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_runs import Lambda

import sambac
import sambarun

S, T = torch.special, torch.tensor
X = T([-2.0, -0.5, 0.0, 0.5, 3.0])
WHOLE = T([3, 1, 2, 4, 2])
NEAR = T([1e-9, -3e-3, 0.029, -0.031, 0.2])
"""Around the points at which power series take over."""

_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "angle": torch.angle,
    "atan2 by number": lambda x: torch.atan2(x, T(2.0)),
    "clamp by tensor": lambda x: torch.clamp(x, min=T(0)),
    "divide": lambda x: torch.divide(x, WHOLE),
    "divide by number": lambda x: torch.divide(x, 2),
    "divide integers": lambda x: torch.divide(WHOLE, x + 7),
    "entr": S.entr,
    "erfcx": S.erfcx,
    "expm1": torch.expm1,
    "greater": lambda x: torch.greater(x, WHOLE),
    "greater_equal": lambda x: torch.greater_equal(WHOLE, x),
    "less": lambda x: torch.less(x, 1.5),
    "less_equal": lambda x: torch.less_equal(WHOLE, x),
    "log1p": lambda x: torch.log1p(x.abs()),
    "logaddexp": lambda x: torch.logaddexp(x / 1, T(1.0)),
    "multiply": lambda x: torch.multiply(x, WHOLE),
    "multiply by number": lambda x: torch.multiply(x, 2.5),
    "numbers that float32 has not": lambda x: torch.where(x == 0.1, 0.7, 0.1 - x),
    "a tensor of such": lambda x: torch.full_like(x, 0.7, dtype=torch.float64),
    "such as a factor": lambda x: torch.add(x / 1, x / 1, alpha=0.1),
    "such among others": lambda x: (x / 1).masked_fill(x > 0, 0.7),
    "such in a range": lambda x: torch.arange(0.1, 0.45, 0.1, dtype=torch.float64) + 0 * x.sum(),
    "such before a fill": lambda x: (x / 1).clone().fill_(0.7),
    "such of activations": lambda x: (
        F.leaky_relu(x / 1, 0.1)
        + F.elu(x / 1, 0.3)
        + F.celu(x / 1, 0.3)
        + F.selu(x / 1)
        + F.softplus(x / 1, 0.7, 1.1)
        + F.hardswish(x / 1)
        + F.hardsigmoid(x / 1)
        + F.gelu(x / 1, approximate="tanh")
    ),
    "such of sums": lambda x: (
        torch.addcmul(x / 1, x / 1, x / 1, value=0.1)
        + torch.addcdiv(x / 1, x / 1, x.abs() + 1.5, value=0.7)
    ),
    "such of products": lambda x: (
        torch.addmm(*[x.reshape(-1, 1) / 8] * 2, x.reshape(1, -1)[:, :1] / 1, beta=0.1, alpha=0.7)
        + 0.3 * ((x.reshape(-1, 1) / 1) @ (x.reshape(1, -1)[:, :1] / 1))
    ),
    "such of attention": lambda x: F.scaled_dot_product_attention(
        *[x.reshape(1, 1, -1, 1) / 4] * 3, scale=0.3
    ),
    "remainder by number": lambda x: torch.remainder(x, 2.5),
    "remainder by tensor": lambda x: torch.remainder(x, T(2)),
    "remainder of number": lambda x: torch.remainder(7, x.abs() + 1),
    "signbit": torch.signbit,
    "sinc": torch.sinc,
    "special expm1": S.expm1,
    "special log1p": lambda x: S.log1p(x.abs()),
    "special sinc": S.sinc,
    "subtract": lambda x: torch.subtract(x, WHOLE, alpha=2),
    "true_divide": lambda x: torch.true_divide(x, WHOLE),
    "xlog1py of number": lambda x: S.xlog1py(0.5, x.abs()),
    "xlog1py by number": lambda x: S.xlog1py(x, 0.5),
    "xlogy by number": lambda x: torch.xlogy(x, 3),
    "xlogy of number": lambda x: torch.xlogy(2.0, x.abs()),
    "xlogy of tensor": lambda x: torch.xlogy(T(2), x.abs()),
}
_ERROR_FUNCTIONS = {
    "erf": S.erf,
    "erfc": torch.erfc,
    "log_ndtr": S.log_ndtr,
    "ndtr": S.ndtr,
    "special erfc": S.erfc,
}
_TOLERANCES = {
    torch.float32: 2e-5,
    torch.float64: 1e-12,
    torch.float16: 3e-3,
    torch.int32: 2e-5,
    torch.int64: 2e-5,
}
_LEFT = {
    # onnxruntime has neither an error function nor an arc tangent of them, which is refused, and
    # the polynomial for erfcx has the digits of float32 numbers.
    torch.float64: ("atan2 by number", "erfcx", *_ERROR_FUNCTIONS),
    # PyTorch has none on CPUs.
    torch.float16: ("erfcx", "log_ndtr"),
}


# Whole numbers of both kinds are made floats at the same places.
_LONG = (torch.int32,)


@pytest.mark.parametrize(
    "dtype", [pytest.param(t, marks=pytest.mark.long) if t in _LONG else t for t in _TOLERANCES]
)
def test_values_and_types(dtype: torch.dtype) -> None:
    functions = {**_FUNCTIONS, **_ERROR_FUNCTIONS}
    left = _LEFT.get(dtype, ())
    names = [name for name in functions if name not in left]

    def all_of(x: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(functions[name](value) for name in names for value in (x, one))

    inputs = (X.to(dtype), T(2.0, dtype=dtype))
    program = sambac.compile(Lambda(all_of), inputs=inputs)
    with sambarun.load(program) as executable:
        found = executable.run({f"args_{at}": x.numpy() for at, x in enumerate(inputs)})
    wanted = all_of(*inputs)
    for at, want in enumerate(wanted):
        name, made = names[at // 2], found[f"output_{at}"]
        assert made.dtype == want.numpy().dtype, name
        np.testing.assert_allclose(
            made, want.numpy(), rtol=_TOLERANCES[dtype], atol=_TOLERANCES[dtype], err_msg=name
        )


def test_power_series_have_the_digits_of_float64() -> None:
    def both(x: torch.Tensor) -> torch.Tensor:
        return torch.stack((torch.log1p(x), torch.expm1(x)))

    x = NEAR.double()
    with sambarun.load(sambac.compile(Lambda(both), inputs=(x,))) as executable:
        found = executable.run({"args_0": x.numpy()})["output"]
    np.testing.assert_allclose(found, both(x).numpy(), rtol=1e-13)


_AT_LIMITS = {
    "clamp": lambda x: x.clamp(0, 6),
    "detached": lambda x: x * x.detach(),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink at a rounded limit": lambda x: F.hardshrink(x, 0.1),
    "hardtanh": F.hardtanh,
    "hardtanh at rounded limits": lambda x: F.hardtanh(x, -0.1, 0.7),
    "no more than a rounded number": lambda x: x * (x <= 0.1),
    "other than a rounded number": lambda x: x * (x != T(0.7)),
    "relu": F.relu,
    "relu6": F.relu6,
    "softshrink": F.softshrink,
}

_NUMPY = {torch.bfloat16: ml_dtypes.bfloat16, torch.float16: np.float16, torch.float64: np.float64}


@pytest.mark.parametrize("dtype", _NUMPY)
def test_gradients_at_limits_in_other_types(dtype: torch.dtype) -> None:
    """What is computed in a wider type, or spelled out, has the stops of its own type."""
    x = T([-1.0, -0.1, -0.0, 0.0, 0.1, 0.5, 0.7, 5.0, 6.0, 7.0]).to(dtype)

    def all_of(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([function(x) for function in _AT_LIMITS.values()]).float()

    options = sambac.CompileOptions(train=True, input_grads=("args_0",), backward_from=("output",))
    executable = sambarun.load(sambac.compile(Lambda(all_of), options, inputs=(x,)))
    for at, name in enumerate(_AT_LIMITS):
        leaf = x.clone().requires_grad_()
        seed = torch.zeros(len(_AT_LIMITS), len(x))
        seed[at] = 1
        (wanted,) = torch.autograd.grad(all_of(leaf), leaf, seed)
        given = leaf.detach().double().numpy().astype(_NUMPY[dtype])
        found = executable.run({"args_0": given, "output__grad": seed.numpy()})["args_0__grad"]
        np.testing.assert_allclose(
            np.asarray(found, np.float32), wanted.float().numpy(), atol=2e-2, err_msg=name
        )


def test_what_has_not_the_digits_of_float64_is_refused() -> None:
    with pytest.raises(sambac.CompileError, match=r"erfcx of float64 has only the digits of"):
        sambac.compile(Lambda(S.erfcx), inputs=(X.double(),))


class _Probabilities(torch.nn.Module):
    """Cross entropies of probabilities that a weight makes, in one type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.1, -0.4, 1.0], dtype=dtype))

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy(torch.sigmoid(self.w * x), t)


def test_cross_entropy_of_probabilities_trains_in_half_precision() -> None:
    """What bounds the slope from below is none of float16's numbers."""
    x, t = torch.tensor([1.0, 2.0, -1.0]).half(), torch.tensor([1.0, 0.0, 1.0]).half()
    module = _Probabilities(torch.float16)
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    before = module.w.detach().numpy().copy()
    with sambarun.load(sambac.compile(module, options, inputs=(x, t))) as executable:
        executable.step({"x": x.numpy(), "t": t.numpy()})
        found = before - executable.state()["w"]
    module(x, t).backward()
    assert module.w.grad is not None
    np.testing.assert_allclose(found, module.w.grad.numpy(), atol=2e-3)


def _normalized(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def test_normalisations_whose_scale_is_of_another_type() -> None:
    """By the root of the mean square, as models spell them: in float32, rounded before or behind.

    PyTorch's exporter makes one operator of them, whose body ONNX defines for a single type.
    """
    x, g = torch.linspace(-1, 3, 12).reshape(3, 4), torch.linspace(0.5, 2, 4)

    def all_of(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half, brain = torch.float16, torch.bfloat16
        return (
            _normalized(x + 1).to(half) * g.to(half),
            g.to(brain) * _normalized(x + 2).to(brain),
            _normalized(x.to(brain).float()) * g,
            _normalized(x.to(half).float()).to(half) * g.to(half),
            _normalized(x.double()) * g.double(),
        )

    with sambarun.load(sambac.compile(Lambda(all_of), inputs=(x, g))) as executable:
        found = executable.run({"args_0": x.numpy(), "args_1": g.numpy()}).values()
    for got, want in zip(found, all_of(x, g), strict=True):
        assert str(got.dtype) == str(want.dtype).removeprefix("torch.")
        digits = max(torch.finfo(want.dtype).eps, 1e-7)
        numbers = np.asarray(got, np.float64)
        np.testing.assert_allclose(numbers, want.double().numpy(), rtol=4 * digits, atol=1e-7)
