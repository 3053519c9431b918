"""Rows that are empty, of one element, or hold a NaN, beside PyTorch."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
import torch.nn.functional as F
from torch_points import COMPARED, Comparison, Point

T = torch.tensor
EMPTY, ONE = torch.zeros(3, 0), T([[3.0], [-1.0], [0.0]])
NONE = torch.zeros(0, 3)
FACTORS = T([
    [1.0, inf, 2], [inf, inf, 1], [-inf, 3, inf], [0, inf, 2], [0, 0, inf], [0, 2, 3], [0, -0.0, 3],
    [0, 0, 0], [nan, 1, 2], [nan, 0, 2], [1e30, 1e30, 1e30],
])  # fmt: skip
NAN = T([
    [3.0, 3, 1], [-1, nan, -1], [0, -0.0, -4], [inf, -inf, 0], [nan, nan, 0], [inf, nan, inf],
    [nan, inf, -inf], [-inf, -inf, -inf],
])  # fmt: skip


def _counted(x: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Return what is no number of x's as one that has gradients, which are 0."""
    return found + 0 * x.nan_to_num(0, 0, 0).sum()


_PRODUCTS = {
    "prod": lambda x: x.prod(1),
    "prod, kept": lambda x: x.prod(0, keepdim=True),
    "prod of all": lambda x: x.prod(),
    "running prod": lambda x: x.cumprod(1),
}

# Of rows of any number of elements.
_REDUCTIONS = {
    "all": lambda x: _counted(x, (x > 0).all(1)),
    "any": lambda x: _counted(x, (x > 0).any(1)),
    "any of all": lambda x: _counted(x, (x > 0).any()),
    "any of both": lambda x: _counted(x, (x > 0).any((0, 1), keepdim=True)),
    "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "cross entropy": lambda x: F.cross_entropy(x, x.softmax(1)),
    "cross entropy of logits": lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid()),
    **_PRODUCTS,
    "mean": lambda x: x.mean(1),
    "mean of all": lambda x: x.mean(),
    "mean, kept": lambda x: x.mean((0, 1), keepdim=True),
    "mean in float64": lambda x: x.mean(1, dtype=torch.float64).float(),
    "softmax": lambda x: x.softmax(1),
    "square error": lambda x: F.mse_loss(x, x + 1),
    "std": lambda x: x.std(1),
    "sum": lambda x: x.sum(1),
    "var": lambda x: x.var(1),
    "var, biased": lambda x: x.var(1, unbiased=False),
    "var by three": lambda x: x.var(1, correction=3),
    "var by more": lambda x: x.var(1, correction=-2),
    "std by more": lambda x: x.std(correction=-0.5),
    "var of all": lambda x: x.var(),
    "norm": lambda x: x.norm(dim=1),
}

# Left out with NaN: PyTorch's mean beside a variance is none where one is infinite.
_OF_NUMBERS = {
    "var and mean": lambda x: torch.stack(torch.var_mean(x, 1)),
}

_EXTREMA = {
    "amax": lambda x: x.amax(1),
    "amax of all": lambda x: x.amax(),
    "amin": lambda x: x.amin((0, 1), keepdim=True),
    "aminmax": lambda x: torch.stack(x.aminmax(dim=1)),
    "argmax": lambda x: _counted(x, x.argmax(1)),
    "argmax of all": lambda x: _counted(x, x.argmax(keepdim=True)),
    "argmin": lambda x: _counted(x, x.argmin(0, keepdim=True)),
    "argsort": lambda x: _counted(x, x.argsort(1)),
    "max": lambda x: x.max(1),
    "max of all": lambda x: x.max(),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "min": lambda x: x.min(0, keepdim=True),
    "min of all": lambda x: x.min(),
    "place of max": lambda x: _counted(x, x.max(1)[1]),
    "place of min": lambda x: _counted(x, x.min(1, keepdim=True)[1]),
    "safe softmax": lambda x: torch.ops.aten._safe_softmax.default(x, 1),
    "sort": lambda x: x.sort(1),
    "sort back": lambda x: x.sort(0, descending=True),
    "sort, stable": lambda x: torch.sort(x, stable=True, dim=1),
    "topk": lambda x: x.topk(2, 1),
    "topk of lines": lambda x: x[:2].topk(2, 0, largest=False),
    "topk of a number": lambda x: x[0, 0].topk(1),
}  # fmt: skip
# Their gradients count at rows with a NaN too.
_WHOLE = {
    "amax": lambda x: x.amax(1),
    "amax of all": lambda x: x.amax(),
    "amin": lambda x: x.amin((0, 1), keepdim=True),
    "aminmax": lambda x: torch.stack(x.aminmax(dim=1)),
    "max": lambda x: x.max(1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, inf, 1),
    "norm -inf": lambda x: torch.linalg.vector_norm(x, -inf, 1),
    "renorm 1": lambda x: torch.renorm(x, 1, 0, 2.0),
    "renorm 2": lambda x: torch.renorm(x, 2, 0, 2.0),
    "renorm 3": lambda x: torch.renorm(x[[0, 1, 2, 4, 5]], 3, -2, 2.0),
    "renorm inf": lambda x: torch.renorm(x, inf, 0, 2.0),
}


def _of(x: torch.Tensor) -> list[Point]:
    return [Point(name, f, (x,)) for name, f in {**_REDUCTIONS, **_OF_NUMBERS}.items()]


M, V = torch.arange(6.0).reshape(2, 3), T([2.0, -1.0])


def _product(name: str, shapes: tuple[tuple[int, ...], ...], x: torch.Tensor) -> list[Point]:
    """Return sums of `x` and a product: of no elements, and with a beta of 0 for NaN."""
    function = getattr(torch, name)
    left, right = (torch.ones(shape) for shape in shapes)
    return [
        Point(f"{name} of {tuple(left.shape)} by {beta}",
              lambda x, a, b, beta=beta: function(x, a, b, beta=beta, alpha=0.5),
              (x * nan if beta == 0 else x, left, right))
        for beta in (0.0, 1.0, 2.0)
    ]  # fmt: skip


_NOTHING = (torch.zeros(0, 4, 3), torch.zeros(2, 4, 0))
_AFFINE = (T([1.0, 2, 3, 4]), T([4.0, 3, 2, 1]))
# What was refused, or ended in an error of the compiler.
_EMPTIES = [
    Point("running product", lambda x: x.cumprod(1), (EMPTY,)),
    Point("running sum", lambda x: x.cumsum(1), (EMPTY,)),
    Point("trace", torch.trace, (EMPTY,)),
    Point("trace of none", torch.trace, (NONE,)),
    Point("trace of some", torch.trace, (M.T.contiguous(),)),
    Point("layer norm", lambda x: F.layer_norm(x, (3,)), (NONE,)),
    Point("layer norm of nothing", lambda x, w, b: F.layer_norm(x, (0,), w, b),
          (EMPTY, torch.zeros(0), torch.zeros(0))),
    Point("instance norm", lambda x: F.instance_norm(x), (_NOTHING[0],)),
    *(Point(f"group norm of {tuple(x.shape)}", lambda x, w, b: F.group_norm(x, 2, w, b),
            (x, *_AFFINE)) for x in _NOTHING),
]  # fmt: skip


GROUPS: dict[str, list[Point]] = {
    "empty": _of(EMPTY),
    "without rows": _of(NONE),
    "of one": _of(ONE),
    "with NaN": [Point(name, f, (NAN,)) for name, f in {**_EXTREMA, **_REDUCTIONS}.items()]
    + [Point(name, f, (NAN,), whole=True) for name, f in _WHOLE.items()],
    "empty operators": _EMPTIES,
    "factors": [
        Point(f"{name} {len(rows)}", f, (rows,))
        for name, f in _PRODUCTS.items()
        for rows in (FACTORS, FACTORS[5:6], FACTORS[:4])
    ],
    "products": [
        point
        for inner in (0, 4)
        for name, shapes, x in (
            ("addmm", ((2, inner), (inner, 3)), M),
            ("addmv", ((2, inner), (inner,)), V),
            ("addbmm", ((5, 2, inner), (5, inner, 3)), M),
            ("baddbmm", ((5, 2, inner), (5, inner, 3)), M),
        )
        for point in _product(name, shapes, x)
    ]
    + _product("addbmm", ((0, 2, 4), (0, 4, 3)), M),
}


# PyTorch says so itself of variances of too few elements.
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@COMPARED
@pytest.mark.parametrize("name", GROUPS)
def test_forward_and_gradient_of_rows(name: str, compared: Comparison) -> None:
    assert compared(GROUPS[name]) == []
