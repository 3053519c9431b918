"""Whole numbers, truth values and mixed types: digits, overflow, signs, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_runs import Lambda

import sambac
import sambarun

T = torch.tensor
_TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_MIXED = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16)
_DIVIDED: dict[str, Callable[..., torch.Tensor]] = {
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "fmod": torch.fmod,
    "truncated": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floored": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}


def _values(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Extreme numbers, and divisors of both signs."""
    if dtype is torch.bool:
        return T([True, False, True, False]), T([True, True, True, True])
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x = T([low, high, low, high, 7, 7, 0, 5])
    y = T([3, 3, high, 2, 2, 1, 5, 1])
    if low == 0:
        return x.to(dtype), y.to(dtype)
    signs = T([-1, -1, -1, 1, -1, 1, 1, -1])
    both = torch.cat((x, x, T([-7, -7]))), torch.cat((y, y * signs, T([2, -2])))
    return both[0].to(dtype), both[1].to(dtype)


def _cases(dtype: torch.dtype) -> dict[str, tuple[Callable[..., torch.Tensor], ...]]:
    """Functions of two tensors of a type, and a third of small numbers."""
    cases = {
        "sum": lambda x, y, n: x + y,
        "sum in place": lambda x, y, n: x.clone().add_(y),
        "sum with True": lambda x, y, n: x + True,
        "product": lambda x, y, n: x * y,
        "square": lambda x, y, n: x**2,
        "high power": lambda x, y, n: x**35,
        "powers": lambda x, y, n: x**n,
        "large powers": lambda x, y, n: x ** (n * 50),
        "huge powers": lambda x, y, n: (x | 1) ** (y.abs() if y.dtype.is_signed else y),
        "odd powers": lambda x, y, n: (n | 1) ** (n.int() * 25 + 3).to(n.dtype),
        "negative powers": lambda x, y, n: n ** (y - y - n) if n.dtype.is_signed else n,
        "powers of 3": lambda x, y, n: 3**n,
        "half powers": lambda x, y, n: n**0.5,
        "by float": lambda x, y, n: n ** n.half(),
        "by float32": lambda x, y, n: n ** n.float(),
        "all": lambda x, y, n: x.prod(),
        "running sums": lambda x, y, n: x.cumsum(0),
    }
    cases |= {
        f"{f.__name__}": lambda x, y, n, f=f: f(x)
        for f in (torch.isnan, torch.isfinite, torch.isinf, torch.isposinf, torch.isneginf)
    }
    cases["places"] = lambda x, y, n: x.argsort(stable=True)
    cases["in order"] = lambda x, y, n: x.sort(descending=True, stable=True)[0]
    if dtype is torch.bool:
        for name in (
            "powers",
            "large powers",
            "huge powers",
            "odd powers",
            "negative powers",
            "by float",
            "by float32",
        ):
            del cases[name]
        return cases
    cases |= {
        f"{f.__name__}": lambda x, y, n, f=f: f(x)
        for f in (torch.floor, torch.ceil, torch.round, torch.trunc)
    }
    cases |= {f"{name}": lambda x, y, n, f=f: f(x, y) for name, f in _DIVIDED.items()}
    cases |= {f"{name} number": lambda x, y, n, f=f: f(x[1:], 3) for name, f in _DIVIDED.items()}
    if dtype.is_signed:
        cases |= {
            f"{name} negative": lambda x, y, n, f=f: f(x[1:], -3) for name, f in _DIVIDED.items()
        }
        cases |= {
            "lowest // -1": lambda x, y, n: x // (y - y - 1),
            "lowest % -1": lambda x, y, n: x % (y - y - 1),
        }
    return cases | {
        "layer": lambda x, y, n: F.linear(x.reshape(-1, 2), y.reshape(-1, 2), n[: len(n) // 2]),
        "layer of a batch": lambda x, y, n: F.linear(x.reshape(-1, 2)[None], y[:6].reshape(3, 2)),
        "sum and product": lambda x, y, n: torch.addmm(n[:2], x.reshape(2, -1), y.reshape(-1, 2)),
        "shares of them": lambda x, y, n: torch.addmm(
            n[:2], x.reshape(2, -1), y.reshape(-1, 2), beta=2, alpha=3
        ),
        "sums of a batch": lambda x, y, n: torch.addbmm(
            n[:1], x.reshape(2, 1, -1), y.reshape(2, -1, 1), alpha=3
        ),
        "<<": lambda x, y, n: x << n,
        ">>": lambda x, y, n: x >> n,
        "<< 2": lambda x, y, n: x << 2,
        ">> 2": lambda x, y, n: x >> 2,
        "1 <<": lambda x, y, n: 1 << n,
    }


# Between them lie those of the long run, which are widened and cut off as their neighbours are.
_BETWEEN = (torch.int16, torch.int32)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(t, marks=pytest.mark.long) if t in _BETWEEN else t for t in _TYPES],
)
def test_arithmetic_is_that_of_pytorch(dtype: torch.dtype) -> None:
    cases = _cases(dtype)
    x, y = _values(dtype)
    inputs = (x, y, (torch.arange(len(x)) % 5).to(dtype))

    def all_of(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*given) for function in cases.values())

    program = sambac.compile(Lambda(all_of), inputs=inputs)
    with sambarun.load(program) as executable:
        found = executable.run({f"args_{at}": x.numpy() for at, x in enumerate(inputs)})
    for at, (name, want) in enumerate(zip(cases, all_of(*inputs), strict=True)):
        made = found[f"output_{at}"]
        assert (made.dtype, made.shape) == (want.numpy().dtype, want.shape), name
        tolerance = 2e-3 if want.is_floating_point() else 0
        np.testing.assert_allclose(made, want.numpy(), rtol=tolerance, err_msg=name)


def test_types_mix_as_in_pytorch() -> None:
    """Sums, comparisons, choices and powers of operands of two types."""
    inputs = tuple(T([1, 0, 1]).to(dtype) for dtype in _MIXED)
    functions = (torch.add, torch.lt, torch.maximum, lambda x, y: torch.where(x > 0, x, y))

    def all_of(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = [(x, y) for x in given for y in given]
        made = [function(x, y) for function in functions for x, y in pairs]
        powers = [x**y for x, y in pairs if torch.bool not in (x.dtype, y.dtype)]
        return (*made, *powers)

    program = sambac.compile(Lambda(all_of), inputs=inputs)
    with sambarun.load(program) as executable:
        found = executable.run({f"args_{at}": x.numpy() for at, x in enumerate(inputs)})
    for at, want in enumerate(all_of(*inputs)):
        made = found[f"output_{at}"]
        assert (made.dtype, made.shape) == (want.numpy().dtype, want.shape), at
        np.testing.assert_allclose(made, want.numpy())


_ASKED: dict[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "sum": lambda x, dtype: x.sum(dtype=dtype),
    "sums": lambda x, dtype: x.sum(1, dtype=dtype),
    "mean": lambda x, dtype: x.mean(dtype=dtype),
    "means": lambda x, dtype: x.mean(1, keepdim=True, dtype=dtype),
    "product": lambda x, dtype: x.prod(dtype=dtype),
    "products": lambda x, dtype: x.prod(1, dtype=dtype),
    "running sums": lambda x, dtype: x.cumsum(1, dtype=dtype),
    "running products": lambda x, dtype: x.cumprod(1, dtype=dtype),
    "softmax": lambda x, dtype: x.softmax(1, dtype=dtype),
    "its logarithm": lambda x, dtype: x.log_softmax(0, dtype=dtype),
    "norm": lambda x, dtype: torch.linalg.vector_norm(x, 2, 1, dtype=dtype),
    "filled": lambda x, dtype: torch.full_like(x, 1e5 + 0.1, dtype=dtype),
}


def test_what_is_asked_for_in_a_type_is_computed_in_it() -> None:
    """No number of float16 is as large as its sum, nor has the digits of its softmax."""
    x = T([[600.0, 300.5, 0.1], [599.5, 599, 598]]).half() * 100
    whole = T([[100, 27, 101], [3, 5, 120]]).to(torch.int8)

    def all_of(x: torch.Tensor, whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        floats = [function(x, torch.float32) for function in _ASKED.values()]
        wide = [_ASKED[name](whole, torch.float32) for name in ("sum", "mean", "products")]
        wide += [torch.full_like(whole, 1000, dtype=torch.int32), whole.any(()), whole.all(())]
        return (*floats, *wide, whole.sum(), whole.sum(0), whole.cumsum(1), whole.cumprod(1))

    program = sambac.compile(Lambda(all_of), inputs=(x, whole))
    with sambarun.load(program) as executable:
        found = executable.run({"args_0": x.numpy(), "args_1": whole.numpy()})
    for at, want in enumerate(all_of(x, whole)):
        made = found[f"output_{at}"]
        assert (made.dtype, made.shape) == (want.numpy().dtype, want.shape), at
        np.testing.assert_allclose(made, want.numpy(), rtol=1e-5, err_msg=str(at))
