"""Functions of PyTorch at limits, ties, zeros, infinities and large numbers, beside PyTorch.

Where the result, an input or PyTorch's gradient is no number, no gradient is compared.
"""

from __future__ import annotations

import math
from math import inf, nan

import pytest
import torch
import torch.masked
import torch.nn.functional as F
from torch_points import COMPARED, Comparison, Point

T = torch.tensor
X = T([
    *(-inf, -1e4, -90.0, -20.0, -6.0, -3.0, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-10, 0.5, 1.0, 2.5),
    *(3.0, 6.0, 20.0, 90.0, 1e4, inf, nan),
])  # fmt: skip
_BESIDE = T([1.0, 3.0, 6.0, -1.0, -3.0]).nextafter(T(0.0))
# Their gradients at infinities are 0 times infinity here.
FINITE = X[1:-2]

_UNARY = {
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp above": lambda x: x.clamp(max=6.0),
    "clamp below": lambda x: x.clamp(min=0),
    "clamp crossing": lambda x: x.clamp(3, -1),
    "clamp to nothing": lambda x: x.clamp(nan, 1.0),
    "clamp to nothing and a whole number": lambda x: x.clamp(nan, 1),
    "clamp of whole numbers": lambda x: x.nan_to_num(0, 0, 0).long().clamp(0, nan) + 0 * x,
    "clamp below nothing": lambda x: x.clamp(max=nan),
    "erfc": torch.erfc,
    "erfcx": lambda x: torch.special.erfcx(x[1:]),
    "expm1": torch.expm1,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "hardtanh to nothing": lambda x: F.hardtanh(x, nan, 1),
    "hardtanh below nothing": lambda x: F.hardtanh(x, -1, nan),
    "hardtanh uneven": lambda x: F.hardtanh(x, -0.5, 3.0),
    "hardtanh within": lambda x: F.hardtanh(x, -0.5, 3.0) + 2,
    "hardtanh of large": lambda x: F.hardtanh(x, -20.0, 1e4) + 2,
    "hardtanh from 0 to huge": lambda x: F.hardtanh(x, 0.0, 1e30) + 2,
    "hardtanh from huge": lambda x: F.hardtanh(x, -1e30, 1.0) + 2,
    "hardtanh of small": lambda x: F.hardtanh(x, 0.0, 1e-10) + 2,
    "hardtanh endless": lambda x: F.hardtanh(x, -1.0, inf) + 2,
    "hardtanh, steep": lambda x: torch.sqrt(F.hardtanh(x, 0.0, 3.0)),
    "log1p": torch.log1p,
    "log_ndtr": torch.special.log_ndtr,
    "logsigmoid": F.logsigmoid,
    "ndtr": torch.special.ndtr,
    "relu6": F.relu6,
    "relu6 within": lambda x: F.relu6(x) + 2,
    "remainder": lambda x: torch.remainder(x, 2.0),
    "remainder of negative": lambda x: torch.remainder(x, -2.0),
    "sinc": torch.sinc,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.5, 0.0),
    "xlogy": lambda x: torch.xlogy(x, T(2.0)),
}

# Their gradients count everywhere, NaN too.
_WHOLE = {
    "entr": torch.special.entr,
    "erfcx": torch.special.erfcx,
    "hardtanh": F.hardtanh,
    "leaky relu, steep": lambda x: F.leaky_relu(x, -inf),
    "leaky relu of nothing": lambda x: F.leaky_relu(x, nan),
    **{f"power {p}": lambda x, p=p: x**p for p in (-2, -1.5, -1, 0, 0.5, 1, 1.5, 2, 3)},
    "relu6": F.relu6,
    "relu6, masked": lambda x: torch.where(x > 1, F.relu6(x), x),
}
_SLOPES = T([nan, inf, -inf, 0.0, -2.0])

_SMOOTH = {
    name: getattr(torch, name)
    for name in (
        *("abs", "asin", "asinh", "atan", "atanh", "cos", "erf", "exp", "log", "log2", "relu"),
        *("reciprocal", "rsqrt", "sigmoid", "sin", "sqrt", "square", "tan", "tanh"),
    )
} | {
    name: getattr(F, name)
    for name in (
        *("celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "leaky_relu", "mish"),
        *("selu", "silu", "softsign", "tanhshrink"),
    )
}

P = T([-inf, -3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 100.0, inf, nan])
A, B = (side.reshape(-1).contiguous() for side in torch.meshgrid(P, P, indexing="ij"))
_PLAIN = A.isfinite() & B.isfinite()
_BINARY = {
    "atan2": torch.atan2,
    "clamp by tensor above": lambda a, b: torch.clamp(a, max=b),
    "clamp by tensor below": lambda a, b: torch.clamp(a, min=b),
    "clamp by tensors": lambda a, b: torch.clamp(a, b, T(0.5)),
    "clamp from a number": lambda a, b: torch.clamp(a, T(0.5), b),
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "fmod": torch.fmod,
    "hypot": lambda a, b: torch.hypot(a, b * 1e30),
    "hinge": lambda a, b: (a - b).clamp(min=0),
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "margin ranking": lambda a, b: F.margin_ranking_loss(
        a, b, torch.ones_like(a), reduction="none"
    ),
    "huber": lambda a, b: F.huber_loss(a, b, reduction="none", delta=0.7),
    "l1": lambda a, b: F.l1_loss(a, b, reduction="none"),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "smooth l1": lambda a, b: F.smooth_l1_loss(a, b, reduction="none"),
    "smooth l1, sharp": lambda a, b: F.smooth_l1_loss(a, b, reduction="none", beta=0.0),
}

ROWS = T([[3.0, 3, 1], [-1, -1, -1], [0, -0.0, -4], [1e4, -1e4, 0], [0, 0, 0], [2, 0, 0]])
_DEAD = torch.cat([ROWS, T([[-inf, -inf, -inf], [-inf, 0, 0]])])
_ROWS = {
    "log of small": lambda x: torch.log(x.abs() + 1e-8),
    "cummax": lambda x: torch.where(x > 2, nan, x).cummax(1),
    "cummin": lambda x: x.cummin(0),
    "last of the smallest": lambda x: x.cummin(1)[1] * x,
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "searchsorted": lambda x: torch.searchsorted(x.sort(1)[0], x - 1, right=True) * x,
    "searchsorted among whole": lambda x: torch.searchsorted(T([0, 2, 3]), 2.5) * x,
    "searchsorted in one": lambda x: torch.searchsorted(x.new_tensor([-1.0, 0, 0, 3]), x) * x,
    "logsumexp": lambda x: x.logsumexp(1),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(1, keepdim=True),
    "normalize": F.normalize,
    "std": lambda x: x.std(1),
    "std of all": lambda x: x.std(),
    "biased std": lambda x: x.std(1, unbiased=False),
    "std beside the mean": lambda x: torch.std_mean(x, 1),
    "std beside the mean of all": lambda x: torch.std_mean(0 * x),
    "std beside the mean by all": lambda x: torch.std_mean(x, dim=1, correction=0),
    "variance beside the mean": lambda x: torch.var_mean(x, 1),
    "slightly scaled": lambda x: x * 1.000001,
    **{
        f"norm {p}": lambda x, p=p: torch.linalg.vector_norm(x, p, 1)
        for p in (0.5, 1, 1.5, 2, 3, -0.5, -1, -2, inf, -inf)
    },
}

PROBABILITIES = T([0.0, 1e-30, 1e-8, 0.25, 0.5, 1 - 6e-8, 1.0])
CHANCE, TARGET = (
    side.reshape(-1).contiguous()
    for side in torch.meshgrid(PROBABILITIES, T([0.0, 0.3, 1.0]), indexing="ij")
)
# No gradient of a number outside is compared, as its logarithm is none.
CHANCES = T([0.0, 1e-8, 0.1, 0.5, 0.9, 1.0, -0.5, 1.5, nan])
_LOGITS = {
    "logit": torch.logit,
    "logit inside": lambda x: torch.logit(x, 0.1),
    "logit between": lambda x: torch.logit(x, 0.0),
    "special logit": lambda x: torch.special.logit(x, eps=0.6),
}
_MARGINS = T([[1.0, 0, 2], [1, 1, 0], [0, 0, 0]])
_CLASSES = T([0, 1, 2])
_PAIRS = T([[0.0, 0], [1, 1], [3, 4]])
Q = T([
    *(-1e4, -128.5, -128, -127.5, -3, -1.5, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1.5, 2.5, 127),
    *(127.5, 256),
])  # fmt: skip
# Between poles, at zeros, and where series and reflections take over.
_GAMMA = torch.cat([torch.linspace(-6.3, 6.4, 40), T([
    *(-100.3, -30.5, -2.4570247, -1e-30, 1e-38, 1e-10, 1.0, 1.0000001, 1.4616321, 2.0000002, 10.0),
    *(0.0, 100.0, 1e6, 3e38),
])])  # fmt: skip
_NEAR = T([-0.3, -0.159, -0.0, 0.0, 1e-44, 1e-38, 1e-30, 1e-5, 3e-5, 2e-4, 1e-3, 0.02, 0.16])
_POLES = T([-inf, -1e10, -3.0, -0.0, inf, nan])
_PARTS = T([
    *(-1.0, -1 + 6e-8, -0.9, -0.85, -0.5, -0.0, 0.0, 1e-38, 1e-10, 0.3, 0.8500001, 0.99999),
    *(1 - 6e-8, 1.0, 1.5, nan),
])  # fmt: skip
IMAGE = T([[[[1.0, 1, 2, 2], [1, 3, 3, 2], [0, 0, -1, -1], [5, 5, 5, 5]]]])
_MASK = ROWS > 0
_INDEX = T([[0, 1, 2], [2, 0, 1]])


def _image(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, math.prod(shape)).sin().reshape(shape)


# A class, and in one row the label's own, is masked out.
_SCORES = T([[1e4, -1e4, 0.0], [0, 0, 0], [-inf, 0, 1], [90, 90, -90]])
_LABELS, _IGNORED = T([1, 2, 0, 2]), 0
_SHAPES = {
    "rows": (_SCORES, _LABELS),
    "images": (_SCORES.T.reshape(1, 3, 4).contiguous(), _LABELS.reshape(1, 4)),
}
_LOSSES = {
    "cross entropy": F.cross_entropy,
    "likelihood": lambda x, t, **settings: F.nll_loss(x.log_softmax(1), t, **settings),
    "likelihood of scores": F.nll_loss,
}


def _ignoring(loss: str, shape: str, reduction: str) -> Point:
    settings = {"reduction": reduction, "ignore_index": _IGNORED}
    return Point(f"{loss} of {shape}, {reduction}",
                 lambda x, t: _LOSSES[loss](x, t, **settings), _SHAPES[shape])  # fmt: skip


def _masked(name: str, axes: int | tuple[int, ...], unbiased: bool) -> Point:
    function = getattr(torch.masked, name)
    return Point(f"masked {name} {axes} {unbiased}",
                 lambda x, m: function(x, dim=axes, unbiased=unbiased, mask=m),
                 (ROWS, _MASK))  # fmt: skip


def _written(x: torch.Tensor, at: object, values: object) -> torch.Tensor:
    x = x.clone()
    x[at] = values
    return x


def _quantized(scale: float, zero: int, low: int, high: int) -> list[Point]:
    zeros = T([zero, zero], dtype=torch.int32)
    name = f"quantised by {scale}"
    return [
        Point(name, lambda x: torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high),
              (Q,)),
        Point(f"{name}, a tensor", lambda x: torch.fake_quantize_per_tensor_affine(
            x, T(scale), T(zero, dtype=torch.int32), low, high), (Q,)),
        Point(f"{name} by channel", lambda x: torch.fake_quantize_per_channel_affine(
            x.reshape(1, -1).expand(2, -1), T([scale, 2 * scale]), zeros, 0, low, high), (Q,)),
    ]  # fmt: skip


def _interpolated(mode: str, size: tuple[int, int], corners: bool) -> Point:
    return Point(
        f"{mode} {size} {corners}",
        lambda x: F.interpolate(x, size, mode=mode, align_corners=corners, antialias=True),
        (IMAGE,),
    )


GROUPS: dict[str, list[Point]] = {
    "unary": [Point(name, f, (X,)) for name, f in _UNARY.items()],
    "whole": [Point(name, f, (X,), whole=True) for name, f in _WHOLE.items()] + [
        Point("prelu", F.prelu, (X[:, None].repeat(1, 5), _SLOPES), gradients=(0,), whole=True),
        Point("prelu of lines", F.prelu, (X[:, None, None].repeat(1, 5, 2), _SLOPES),
              gradients=(0,), whole=True),
        Point("prelu of one", F.prelu, (X, T([0.3]))),
        Point("prelu of a number", lambda x, w: F.prelu(x[3], w), (X, T([0.3]))),
        Point("slope of prelu", F.prelu, (FINITE, T([0.3]))),
        *(Point(f"{f.__name__} beside limits", f, (_BESIDE,), whole=True)
          for f in (F.hardsigmoid, F.hardswish, F.hardtanh, F.relu6)),
    ],
    "smooth": [Point(name, f, (FINITE,)) for name, f in _SMOOTH.items()],
    "binary": [Point(name, f, (A, B)) for name, f in _BINARY.items()],
    "finite pairs": [
        Point("remainders", torch.remainder, (A[_PLAIN], B[_PLAIN]), gradients=(0,)),
        # That of y is 0 / 0 in PyTorch where both are 0.
        Point("xlogy", torch.xlogy, (A[_PLAIN], B[_PLAIN]), gradients=(0,)),
    ],
    "rows": [Point(name, f, (ROWS,)) for name, f in _ROWS.items()]
    + [Point("safe softmax", lambda x: torch.ops.aten._safe_softmax.default(x, 1), (_DEAD,))]
    + [Point("one element", lambda x: x[:, :1].max(1)[0], (ROWS,))],
    # The gradient of the target is infinite in PyTorch at 0 and 1, and at most 100 here.
    "losses": [
        Point(f"cross entropy of chances, {r}",
              lambda p, t, r=r: F.binary_cross_entropy(p, t, reduction=r), (CHANCE, TARGET),
              gradients=(0,))
        for r in ("none", "mean", "sum")
    ] + [
        Point("poisson", lambda x, y: F.poisson_nll_loss(x, y, log_input=False),
              (_PAIRS, _PAIRS.flip(0))),
        Point("cosine", lambda x, y: F.cosine_embedding_loss(x, y, T([1.0, -1, 1])),
              (_PAIRS, _PAIRS.flip(0))),
    ],
    "logits": [Point(name, f, (CHANCES,)) for name, f in _LOGITS.items()],
    "margins": [
        Point(f"margins {p} {r} {margin}", lambda x, p=p, r=r, margin=margin: F.multi_margin_loss(
            x, _CLASSES, p=p, margin=margin, reduction=r), (_MARGINS,))
        for p in (1, 2) for r in ("none", "mean", "sum") for margin in (1.0, 0.5)
    ] + [
        Point("triplets by distance", lambda x: F.triplet_margin_with_distance_loss(
            x, x.flip(0), x.flip(1), swap=True), (_MARGINS,)),
        Point("margins of one", lambda x: F.multi_margin_loss(x[0], _CLASSES[0]), (_MARGINS,)),
    ],
    "bags": [
        Point("largest of equals", lambda w: F.embedding_bag(
            T([0, 1, 2, 0, 1, 1]), w, T([0, 3, 3]), mode="max"),
            (T([[-inf, 0], [1, 2], [1, 2]]),)),
        *(Point(f"{mode} with NaN", lambda w, mode=mode: F.embedding_bag(
            T([0, 1, 2, 0, 1, 3, 3, 2, 1, 4]), w, T([0, 3, 5, 8, 8, 9]), mode=mode),
            (T([[-inf, 0], [nan, 2], [1, nan], [3, inf], [nan, nan]]),))
          for mode in ("max", "mean", "sum")),
    ],
    "powers": [
        Point(f"to {power}", lambda x, p=power: x ** p, (X,))
        for power in (0.5, 2, 3, -1, -2, 0, 1, 1.5, -1.5, 4, -3, 0.25, -0.25, 2.0)
    ] + [
        # At -0 the infinite gradient has the other sign here.
        Point("to -0.5", lambda x: x ** -0.5, (X[X != 0],)),
        Point("-0.5 of zeros", lambda x: x ** -0.5, (T([0.0, -0.0]),), gradients=()),
        Point("to 0.5, float", lambda x: torch.float_power(x, 0.5).to(x.dtype), (X,)),
        *(Point(f"of {base}", lambda x, b=base: b ** x, (X,)) for base in (2.0, 0.0, 0.5, -1.0)),
        Point("of pairs", torch.pow, (A, B)),
    ],
    "ignored": [
        _ignoring(loss, shape, r)
        for loss in _LOSSES for shape in _SHAPES for r in ("none", "mean", "sum")
    ],
    "masked": [
        _masked(name, axes, unbiased)
        for name in ("var", "std") for axes in (0, 1, (0, 1)) for unbiased in (False, True)
    ] + [Point("masked mean", lambda x, m: torch.masked.mean(x, dim=1, mask=m), (ROWS, _MASK))],
    "gamma": [
        *(Point(name, f, (x,), settled)
          for name, f in (("lgamma", torch.lgamma), ("digamma", torch.digamma))
          for x, settled in ((_GAMMA, None), (_POLES, () if name == "digamma" else None))),
        *(Point(f"polygamma {n}", lambda x, n=n: torch.polygamma(n, x), (_GAMMA,)) for n in (1, 2)),
        *(Point(f"polygamma {n} of -0", lambda x, n=n: torch.polygamma(n, x), (T([-0.0, 0.0]),),
                None if n == 2 else ()) for n in range(5)),
        Point("sinc near 0", lambda x: torch.sinc(x) * 1e3, (_NEAR,), whole=True),
        Point("erfinv", torch.erfinv, (_PARTS,), whole=True),
        Point("ndtri", torch.special.ndtri, (_PARTS[_PARTS != 0],), whole=True),
        Point("ndtri of zeros", torch.special.ndtri, (T([0.0, -0.0]),), ()),
        Point("of whole numbers", lambda x, n: torch.erfinv(n) * x, (T([1.0, 2, 3]), _CLASSES)),
    ],
    "made": [
        *(Point(f"{name} {steps} {dtype}", lambda a, b, n=name, s=steps, d=dtype: getattr(torch, n)(
            a, b, s, dtype=d) + a + b, (T(0.5), T(2.7)))
          for name in ("linspace", "logspace") for steps in (0, 1, 3)
          for dtype in (torch.float32, torch.int64)),
        Point("from a number", lambda a: torch.linspace(1, a, 4) * a, (T(0.5),)),
        Point("copied", lambda x, y: torch.zeros(3, 2).copy_(y) + x, (torch.ones(2), T(2.0))),
        *(Point(f"layer norm {at}", lambda x, at=at: torch.native_layer_norm(
            x, (4,), None, None, 1e-5)[at] + 0 * x.sum(), (_image(3, 2, 4),)) for at in range(3)),
        *(Point(f"group norm {at}", lambda x, at=at: torch.native_group_norm(
            x, None, None, 3, 2, 4, 1, 1e-5)[at] + 0 * x.sum(), (_image(3, 2, 4),))
          for at in range(3)),
        Point("filled number", lambda x, v: x.index_fill(0, T([0]), v), (T(1.5), T(2.0))),
    ],
    "quantised": [p for s in ((1.0, 0, -128, 127), (0.5, 10, 0, 255)) for p in _quantized(*s)],
    "interpolated": [
        _interpolated(mode, size, corners)
        for mode in ("bilinear", "bicubic")
        for size in ((8, 8), (2, 2), (3, 5), (1, 1))
        for corners in (True, False)
    ] + [
        # By factors that are no ratios of sizes. PyTorch's own gradient is that of a copy where a
        # size stays (5 by 1.1), though some of its kernels do not copy.
        Point(f"{mode} {size} by {by}",
              lambda x, mode=mode, by=by: F.interpolate(x, scale_factor=by, mode=mode),
              (_image(1, 2, *size),), gradients=() if mode == "nearest" else None)
        for mode, size, by in (
            ("nearest", (5, 3), (1.1, 2.0)), ("nearest", (5,), (1.1,)), ("linear", (10,), 2.3),
            ("bicubic", (5, 4), (2.3, 0.7)), ("trilinear", (3, 4, 5), (1.4, 2.3, 2.6)))
    ] + [
        Point(f"{mode} by factors", lambda x, mode=mode: F.interpolate(
            x, scale_factor=(2.3, 0.6), mode=mode, antialias=True), (IMAGE,))
        for mode in ("bilinear", "bicubic")
    ],
    "transposed": [
        Point(f"{axes}d, {settings}",
              lambda x, w, b, axes=axes, settings=settings: getattr(
                  F, f"conv_transpose{axes}d")(x, w, b, **settings),
              (_image(4, *[4] * axes), _image(4, 2, *[3] * axes), _image(4)))
        for axes in (1, 2) for settings in (
            {"dilation": 2, "output_padding": 1, "groups": 2},
            {"stride": 2, "dilation": 3, "output_padding": 2, "padding": 1, "groups": 2},
            {"dilation": 3, "output_padding": 2, "padding": 2, "groups": 2},
        )
    ],
    "written": [
        Point("a number", lambda x, m: _written(x, m, 2.0), (ROWS, _MASK)),
        Point("a tensor", lambda x, m, v: _written(x, m, v), (ROWS, _MASK, T(3.0))),
        Point("a row", lambda x, m, v: _written(x, m[:, 0], v), (ROWS, _MASK, T([3.0, 1, 2]))),
        Point("values", lambda x, m, v: _written(x, m, v),
              (ROWS, _MASK, torch.arange(float(_MASK.sum())))),
        Point("columns", lambda x, m, v: _written(x, (slice(None), m[0]), v),
              (ROWS, _MASK, T(1.0))),
    ] + [
        Point(name, lambda a, b, name=name: getattr(torch, name)((a, b)), (ROWS, ROWS[:, :3]))
        for name in ("hstack", "vstack", "dstack", "column_stack", "row_stack")
    ] + [
        Point(f"{name} of vectors", lambda a, b, n=name: getattr(torch, n)((a[0], b[0])),
              (ROWS, ROWS[1:]))
        for name in ("hstack", "vstack", "dstack", "column_stack")
    ],
}  # fmt: skip


@COMPARED
@pytest.mark.parametrize("name", GROUPS)
def test_forward_and_gradient_at_extreme_points(name: str, compared: Comparison) -> None:
    assert compared(GROUPS[name]) == []
