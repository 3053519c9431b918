"""What picks, scatters or rounds: beside infinities, NaN, ties and of nothing, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
import torch
import torch.nn.functional as F
from torch_points import COMPARED, Comparison, Point, differences
from torch_runs import Lambda

import sambac
import sambarun

T = torch.tensor
X = T([-inf, -2.0, -1.0, -0.0, 0.0, 0.1, 0.3, 1.0, 7.5, inf, nan])
A, B = (side.reshape(-1).contiguous() for side in torch.meshgrid(X, X, indexing="ij"))
CUBE = T([[[1.0, inf, nan, -inf, 0], [2, 3, inf, -1, nan], [-0.0, nan, 5, 6, 7]]] * 2)
MATRIX = CUBE[0, :, :3].contiguous()
PLACES = T([0, 0, 1, 1, 3, 3, 2, 4, 6, 6])
KEPT = T([1.0, 2, 0, -inf, nan, 5, inf])
SENT = T([1.0, 1, 2, 2, -inf, -inf, nan, 3, inf, 0])
ROWS = torch.arange(6.0).reshape(3, 2)
PARTS = T([[2.0, -1], [3, 0.5], [1, 4], [-2, 7], [0.25, 3], [5, -6]])
NONE, TABLE, NO_PLACES = torch.zeros(0, 4), torch.ones(5, 4), T([], dtype=torch.long)


def _counted(x: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Return what has no gradients as one whose gradients are 0."""
    return found.detach() + 0 * x.nan_to_num(0, 0, 0)


_PAIRS = {
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}
_COUNTS = {
    "//": lambda x: x.detach() // 0.1,
    "of 1": lambda x: 1 // x.detach(),
    "of whole": lambda x: (x.detach().nan_to_num(0, 0, 0).long() // 2).float(),
    "sign": torch.sign,
    "sgn": torch.sgn,
    "step": lambda x: torch.heaviside(x.detach(), x.new_tensor(0.5)),
    "step of truths": lambda x: torch.heaviside(x > 1, T(True)).float(),
    "step of whole": lambda x: torch.heaviside(x.nan_to_num(0, 0, 0).long(), T(3)).float(),
    "step to another": lambda x: torch.heaviside(x.detach(), x.detach().flip(0)),
}
# Which of equal elements lies in the middle PyTorch leaves open, so there are none along an axis.
_LINES = T([[3.0, -1, 2, inf, 0], [nan, 4, -inf, nan, 1], [-7, -3, 9, 8, 5], [nan] * 5])
_LINES = torch.cat([_LINES, _LINES.flip(1)[:, :4] - 0.5], 1)
_RANKS = {
    "median": torch.median,
    "median of a number": lambda x: x[0, 0].median() * x[0, 0].median(0)[0],
    "median of numbers": lambda x: x[[0, 2]].median(),
    "nanmedian": torch.nanmedian,
    "median of whole numbers": lambda x: x.nan_to_num(0, 9, -9).long().median() + 0 * x[2],
    **{
        f"{name} {dim} {keep}": lambda x, name=name, dim=dim, keep=keep: getattr(torch, name)(
            x, dim=dim, keepdim=keep
        )
        for name in ("median", "nanmedian")
        for dim, keep in ((0, False), (1, True))
    },
    "place of the median": lambda x: x.detach().median(1)[1] + 0 * x[:, 1],
    "kth": lambda x: x.kthvalue(2, 0),
    "kth, and its place": lambda x: x.kthvalue(9, keepdim=True)[0] * x.kthvalue(1)[1][:, None],
}
_EMPTY = {
    "attention": lambda x: F.scaled_dot_product_attention(*[x.reshape(0, 1, 4)] * 3),
    "bags": lambda x: F.embedding_bag(NO_PLACES, TABLE + x.sum(), T([0, 0])),
    "grid": lambda x: F.grid_sample(
        x.reshape(0, 1, 2, 2), x.reshape(0, 1, 2, 2), align_corners=False
    ),
    **{
        name: lambda x, name=name: getattr(torch, name)((x.reshape(-1), x.reshape(-1)))
        for name in ("column_stack", "dstack", "hstack", "vstack")
    },
    "chunks": lambda x: x.chunk(3, 0)[0],
    "determinants": lambda x: torch.linalg.det(x.reshape(2, 0, 0)),
    "diagonals": lambda x: x.diagonal(1).clone(),
    "halves": lambda x: F.glu(x, 0),
    **{
        f"{name} of nothing": lambda x, f=f: torch.stack((f(x.T, -1), f(x.T, 1)))
        for name, f in {
            **{name: getattr(torch, name) for name in ("logsumexp", "prod", "sum", "mean")},
            **{
                f"norm {p}": lambda x, dim, p=p: torch.linalg.vector_norm(x, p, dim)
                for p in (0, 1, 2, 3)
            },
            "any": lambda x, dim: x.any(dim).float() + 0 * x.sum(dim),
            "all": lambda x, dim: x.bool().all(dim).float() + 0 * x.sum(dim),
        }.items()
    },
    **{
        f"larger, {mode}": lambda x, mode=mode: F.interpolate(x.reshape(0, 1, 2, 2), 3, mode=mode)
        for mode in ("area", "bicubic", "bilinear", "nearest", "nearest-exact")
    },
    "masked": lambda x: x.masked_scatter(x > 0, x),
    "from nothing": lambda x: x.masked_scatter(x > 1e9, x[:0]),
    "padded around": lambda x: F.pad(x.reshape(0, 1, 4), (1, 1), mode="circular"),
    "picked": lambda x: (TABLE + x.sum())[:, :1].index_select(1, NO_PLACES),
    "parts": lambda x: x.split(2)[0],
    "parts of rows": lambda x: torch.cat(x.split(3, 1), 1),
    "parts by nothing": lambda x: x.split(0)[0],
    "patches": lambda x: F.unfold(x.reshape(0, 1, 2, 2), 2, padding=1),
    "windows": lambda x: x.unfold(1, 2, 1),
    "product": lambda x: torch.bmm(x.reshape(0, 2, 2), x.reshape(0, 2, 2)),
}


def _written(function: Callable[[torch.Tensor], object]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what `function` leaves of a copy of what it writes to."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        function(x)
        return x

    return copied


_WRITES = {
    "a diagonal": lambda x: x.diagonal().fill_(1),
    "below": lambda x: x.diagonal(-1).mul_(2),
    "twice": lambda x: (x.diagonal().fill_(1), x[0].add_(1), x.diagonal(1).add_(x[2, :2])),
    "nothing": lambda x: x.diagonal(9).fill_(1),
    "filled": lambda x: x.fill_diagonal_(7),
    "strided": lambda x: x.as_strided((2, 2), (1, 4), 1).mul_(3),
}
_SQUARE = torch.arange(12.0).reshape(3, 4)[:, :3].contiguous()
_TALL = torch.arange(21.0).reshape(7, 3)
_TURNED = torch.arange(24.0).reshape(2, 3, 4)
_STRIDED = {
    "turned": lambda x: (x + 1).transpose(0, 2).as_strided((2, 3), (3, 1), 2),
    "channels last": lambda x: x[None].to(memory_format=torch.channels_last).as_strided(
        (2, 2), (3, 1), 1),
    "of a part": lambda x: (x + 1)[1].as_strided((2, 2), (2, 1)),
    "of the same part": lambda x: (x + 1)[1].as_strided((2, 2), (2, 1), 13),
    "overlapping": lambda x: x.as_strided((5, 3), (2, 1)),
}  # fmt: skip
_FREQUENT = T([[3.0, 1, 1, 3, 2], [0, -1, 0, -1, -1], [5, 4, 3, 2, 1]])
_LABELS = T([[3, 0, -1, 1], [1, 1, -1, 0], [-1, 0, 0, 0]])
_CUBE = torch.linspace(-2, 2, 36).reshape(3, 3, 4)
_INDEXED: dict[str, Callable[..., torch.Tensor]] = {
    "first axis": lambda x, i: x[i],
    "axis between": lambda x, i: x[:, i],
    "last axis": lambda x, i: x[..., i],
    "first of a part": lambda x, i: x[1:, i, 1],
}


GROUPS = {
    "written views": [Point(name, _written(f), (_SQUARE,)) for name, f in _WRITES.items()] + [
        Point("of planes", _written(lambda x: x.diagonal(1, 2, 0).mul_(3)), (_TURNED,)),
        Point("below the end", _written(lambda x: x.fill_diagonal_(0, wrap=True)), (_TALL,)),
        Point("of a cube", _written(lambda x: x.fill_diagonal_(5)), (torch.ones(3, 3, 3),)),
        Point("scattered", torch.diagonal_scatter, (_TALL, T([1.0, 2, 3]))),
        Point("of truths", lambda x: x * _written(lambda y: y.fill_diagonal_(True))(x > 4),
              (_SQUARE,)),
    ],
    "strides": [Point(name, lambda x, f=f: f(x).clone(), (_TURNED,))
                for name, f in _STRIDED.items()],
    "single axes": [
        Point("none is", lambda x: x.squeeze(1) * 2, (_TURNED,)),
        Point("some are", lambda x: x[:, :1, None].squeeze((0, 1, -1, 2)), (_TURNED,)),
        Point("none of several is", lambda x: x.squeeze((0, 2)) + 1, (_TURNED,)),
        *(Point(f"{f.__name__} {at}", lambda x, f=f, at=at: f([x[0, 0], x[0, 0, 0]])[at] * 2,
                (_TURNED,))
          for f in (torch.atleast_1d, torch.atleast_2d, torch.atleast_3d) for at in (0, 1)),
    ],
    "put": [
        Point(f"put {add}", lambda x, s, add=add: x.put(T([[0, -1], [5, 6]]), s, accumulate=add),
              (_TURNED, T([[1.0, 2], [3, 4]])))
        for add in (False, True)
    ] + [Point("added twice", lambda x, s: x.put(T([4, 4]), s, accumulate=True),
               (_TURNED, T([1.0, 2])))],
    "most frequent": [
        Point(f"mode {dim} {keep}", lambda x, dim=dim, keep=keep: x.mode(dim, keep), (_FREQUENT,))
        for dim, keep in ((0, False), (1, True), (-1, False))
    ] + [
        Point("their places", lambda x: x.mode(1)[1] + 0 * x[:, 0], (_FREQUENT,)),
        Point("beside NaN", lambda x: x.mode(0), (T([[1.0, 2], [nan, 3], [nan, 3]]),)),
    ],
    "repeated": [Point("rows", lambda x: x.repeat_interleave(T([1, 0, 3]), 1, output_size=4),
                       (_TURNED,))],
    "margins of labels": [
        Point(f"margins, {r}", lambda x, r=r: F.multilabel_margin_loss(x, _LABELS, reduction=r),
              (_SQUARE.new_tensor([[0.1, 2, -1, nan], [3, inf, 1, 0], [1, 1, 1, 1]]),))
        for r in ("none", "mean", "sum")
    ] + [Point("of one", lambda x: F.multilabel_margin_loss(x, _LABELS[0]), (T([0.5, 0, 1, 2]),))],
    "pairs": [Point(name, f, (A, B)) for name, f in _PAIRS.items()]
    + [
        Point("sign of another", torch.copysign, (A[~B.isnan()], B[~B.isnan()])),
        Point("sign of a number", lambda x: torch.copysign(x, -0.0), (X,)),
    ],
    "counts": [
        Point(name, lambda x, f=f: _counted(x, f(x)), (X,)) for name, f in _COUNTS.items()
    ],
    "diagonals": [
        Point(f"diagonal {offset} {axes}",
              lambda x, o=offset, axes=axes: x.diagonal(o, *axes).clone(), (CUBE,))
        for offset in (-2, 0, 1, 4) for axes in ((1, 2), (2, 1), (-1, -2))
    ] + [
        Point("of batches", lambda x: x.diagonal(1, 0, 2).clone(), (CUBE,)),
        Point("diag", torch.diag, (MATRIX,)),
        Point("einsum", lambda x: torch.einsum("ii->i", x), (MATRIX,)),
        Point("trace", torch.trace, (MATRIX,)),
    ],
    "scattered": [
        Point(f"{name} {include}", lambda x, s, name=name, include=include: x.scatter_reduce(
            0, PLACES, s, name, include_self=include), (KEPT, SENT))
        for name in ("amax", "amin") for include in (True, False)
    ] + [
        Point(f"{name} of truths", lambda x, s, name=name: x * (x > 1).scatter_reduce(
            0, PLACES, s > 1, name), (KEPT, SENT))
        for name in ("amax", "amin")
    ],
    "filled": [
        Point(f"at {at} along {dim}",
              lambda x, v, at=at, dim=dim: x.index_fill(dim, T(at, dtype=torch.long), v).sin(),
              (_TURNED, T(2.0)))
        for at in ([0, 0, 1], [1], []) for dim in (0, 1, -1)
    ] + [Point("a number twice", lambda x, v: x.index_fill(0, T([0, 0]), v), (T(1.5), T(2.0)))],
    "covariances": [
        Point("of rows", lambda x: torch.cov(x), (_SQUARE.sin(),)),
        Point("written to", lambda x: torch.cov(x).fill_diagonal_(0), (_SQUARE.sin(),)),
        Point("of one row", lambda x: torch.cov(x), (_SQUARE[0],)),
        Point("of one observation", lambda x: torch.cov(x), (_SQUARE[:, :1],)),
        Point("weighted", lambda x, w: torch.cov(
            x, correction=2, fweights=T([1, 0, 4]), aweights=w), (_SQUARE.sin(), T([1.0, 2, 0.5]))),
        Point("without correction", lambda x, w: torch.cov(x, correction=0, aweights=w),
              (_SQUARE.sin(), T([1.0, 2, 0.5]))),
        Point("of whole numbers", lambda x: x * torch.cov(x.detach().long()), (_SQUARE,)),
        Point("correlations", lambda x: torch.corrcoef(x), (_SQUARE.sin(),)),
        Point("correlations of one", lambda x: torch.corrcoef(x), (_SQUARE[0],)),
    ],
    "reduced rows": [
        Point(f"{name} {include} {dim}", lambda x, s, name=name, include=include, dim=dim:
              x.index_reduce(dim, T([2, 0, 2]), s, name, include_self=include),
              (_SQUARE + 1, PARTS.reshape(3, 4)[:, :3] if dim else PARTS.reshape(4, 3)[:3]))
        for name in ("amax", "amin", "mean", "prod") for include in (True, False) for dim in (0, -1)
    ] + [
        Point("of a row", lambda x, s: x.index_reduce(0, T([1, 1]), s, "amax"), (KEPT, SENT[3:5])),
        Point("a number", lambda x, s: x.index_reduce(0, T(0), s, "mean"), (T(3.0), T(5.0))),
    ],
    "sorted elsewhere": [
        Point("of one row", lambda x: torch.searchsorted(
            x, T([2.0, -3, 9]), sorter=x.argsort()) + x.sum(), (_SQUARE[0].flip(0),)),
        Point("of rows", lambda x: torch.searchsorted(
            x, x - 1, sorter=x.argsort(1), right=True) * x, (_FREQUENT,)),
    ],
    "parts": [
        Point(f"{name} {start} {lengths}", lambda x, name=name, start=start, lengths=lengths:
              torch.segment_reduce(x, name, lengths=T(lengths), initial=start), (x,))
        for name in ("sum", "mean", "max", "min", "prod") for start in (None, 0.5)
        for x, lengths in ((SENT, [3, 7]), (PARTS, [1, 3, 2]), (PARTS[:, 0], [2, 0, 4]))
    ],
    "added to all rows": [
        Point("in order", lambda x, y: x.index_add(0, torch.arange(3), y), (ROWS, ROWS + 1)),
        Point("backwards", lambda x, y: x.index_add(0, T([2, 1, 0]), y), (ROWS, ROWS + 1)),
        Point("a part", lambda x, y: x.index_add(1, T([0, 1]), y, alpha=2), (ROWS, ROWS + 1)),
        Point("put", lambda x, y: x.index_put((torch.arange(3),), y, accumulate=True),
              (ROWS, ROWS + 1)),
        Point("the only one", lambda x, y: x.index_add(0, T([0]), y), (ROWS[:1], ROWS[1:2])),
        Point("written", lambda x, y: x.index_copy(0, torch.arange(3), y), (ROWS, ROWS + 1)),
    ],
    "indexed": [
        Point(f"{name} at {list(at.shape)} of {at.dtype}", f, (_CUBE, at))
        for name, f in _INDEXED.items()
        for at in (T(-1), T([2, -3, 2]), T([[0, 1], [-1, 0]], dtype=torch.int32),
                   torch.zeros(0, 2, dtype=torch.long))
    ] + [
        Point("two kinds", lambda x, i, j: x[:, i, j], (_CUBE, T([0, -1]), T([[3], [1]]))),
        Point("two types", lambda x, i, j: x[:, i, j.int()], (_CUBE, T([0, -1]), T([[3], [1]]))),
        Point("two types written", lambda x, i, j: torch.index_put(x, (i, j.int()), x[0, 0]),
              (_CUBE, T([0, -1]), T([[2], [1]]))),
        Point("two types added to", lambda x, i, j: x.index_put((i.int(), j), x[0], True),
              (_CUBE, T([0, -1, 0]), T([[2], [1], [2]]))),
        Point("apart", lambda x, i, j: x[i, :, j], (_CUBE, T([0, -1]), T([[3], [1]]))),
        Point("chosen", lambda x: x[:, [True, False, True]], (_CUBE,)),
        Point("narrow sums", lambda x, i: x.sum(0)[i].cumsum(0), (_CUBE, torch.arange(99) % 3)),
    ],
    "margins": [
        Point(f"margins {p}", lambda x, p=p: F.multi_margin_loss(
            x, T([0, 1]), p=p, reduction="none"), (T([[inf, 1, nan], [0, inf, 1]]),))
        for p in (1, 2)
    ],
    "ranks": [Point(name, f, (_LINES,)) for name, f in _RANKS.items()] + [
        Point("median of equals", torch.median, (T([2.0, 1, 2, 2, 3, 1]),)),
        *(Point(f"median of {x}", torch.median, (T(x),), whole=True)
          for x in ([inf, inf, 1], [-inf, -inf, 1], [inf, nan, 1], [inf, 2, -inf])),
    ],
    "empty": [Point(name, f, (NONE,)) for name, f in _EMPTY.items()],
}  # fmt: skip


@COMPARED
@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:cov")
@pytest.mark.parametrize("name", GROUPS)
def test_forward_and_gradient_of_selections(name: str, compared: Comparison) -> None:
    assert compared(GROUPS[name]) == []


@pytest.mark.parametrize("function", ["scatter", "scatter_add"])
def test_a_source_may_be_larger_than_its_index(function: str) -> None:
    """PyTorch itself has no gradient there: beside that of the part that is read."""
    source = torch.arange(20.0).reshape(4, 5) + 1
    rows = torch.zeros(3, 4)
    index = T([[0, 1, 2], [2, 0, 1]])

    def whole(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return getattr(x, function)(0, index, s)

    assert differences([Point("source", whole, (rows, source[:2, :3].contiguous()))]) == []
    options = sambac.CompileOptions(train=True, input_grads=("args_1",), backward_from=("output",))
    program = sambac.compile(Lambda(whole), options, inputs=(rows, source))
    with sambarun.load(program) as executable:
        found = executable.run({"args_0": rows.numpy(), "args_1": source.numpy()})
    assert torch.equal(T(found["output"]), whole(rows, source))
    expected = torch.zeros(4, 5)
    expected[:2, :3] = 1
    assert torch.equal(T(found["args_1__grad"]), expected)


@pytest.mark.parametrize("lengths", [[2, 3], [2, 5], [2, -1, 5]])
def test_lengths_of_parts_that_are_not_those_of_the_data(lengths: list[int]) -> None:
    """PyTorch refuses them, too."""

    def summed(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(x, "sum", lengths=lengths)

    fitting = T([6 - len(lengths) + 1] + [1] * (len(lengths) - 1))
    program = sambac.compile(Lambda(summed), inputs=(PARTS, fitting))
    with sambarun.load(program) as executable:
        right = executable.run({"args_0": PARTS.numpy(), "args_1": fitting.numpy()})["output"]
        assert torch.equal(T(right), summed(PARTS, fitting))
        with pytest.raises(sambarun.RunError, match="out of"):
            executable.run({"args_0": PARTS.numpy(), "args_1": T(lengths).numpy()})


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x[:, 1:].as_strided((2, 2), (3, 1), 0), "do not lie one after the other"),
        (lambda x: x[:1].expand(3, 4).as_strided((2, 3), (3, 1)), "do not lie one after"),
        (lambda x: (x + 1)[:2].as_strided((3, 4), (4, 1)), "reaches beyond the tensor"),
        (lambda x: (x + 1)[1:].as_strided((2, 4), (4, 1), 0), "reaches beyond the tensor"),
    ],
)
def test_strides_of_other_memory_are_refused(
    function: Callable[[torch.Tensor], torch.Tensor], what: str
) -> None:
    with pytest.raises(sambac.CompileError, match=what):
        sambac.compile(Lambda(function), inputs=(torch.ones(3, 4),))
