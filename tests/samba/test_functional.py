"""Every operator of samba.functional gives what torch gives, alone and in an exported model."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as torch_functional

import sambaflow.samba as samba
from sambaflow.samba.functional.families import _FAMILIES, PATTERNS

_Args: TypeAlias = tuple[object, ...]

torch.manual_seed(0)
_X = torch.rand(2, 4) * 0.8 + 0.1
_Y = torch.rand(2, 4) + 1
_M = torch.rand(4, 3)
_B = torch.rand(2, 3, 4)
_C = torch.rand(2, 4, 3)
_I = torch.tensor([[3, 1, 2, 0], [0, 2, 5, 7]])
_P = torch.tensor([True, False, True, False])
_1D, _2D, _3D = torch.rand(2, 4, 8), torch.rand(2, 4, 8, 8), torch.rand(2, 4, 4, 4, 4)
_LABELS = torch.tensor([1, 3])
_SIGNS = torch.tensor([1.0, -1.0])
_SEQUENCE = torch.rand(6, 2, 4).log_softmax(-1)

_TWO = "copysign div divide eq equal floor_divide fmod ge greater greater_equal gt hypot isclose le"
_TWO += " less less_equal lt maximum minimum mul multiply ne not_equal remainder rsub sub subtract"
_TWO += " true_divide add atan2 heaviside outer"
_TWO += " huber_loss l1_loss mse_loss smooth_l1_loss kl_div poisson_nll_loss cosine_similarity"
_BITS = "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor"
_SEQUENCES = "cat concat concatenate dstack hstack stack vstack"
_BY_RANK = {1: _1D, 2: _2D, 3: _3D}

_SAMPLES: dict[str, _Args] = {
    **dict.fromkeys(_TWO.split(), (_X, _Y)),
    **{name: (_I, _I.flip(1)) for name in _BITS.split()},
    **{name: ([_X, _Y],) for name in _SEQUENCES.split()},
    **{
        f"{kind}{rank}d": (_BY_RANK[rank], 2)
        for kind in ("adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "max_pool")
        for rank in (1, 2, 3)
    },
    **{f"conv{rank}d": (_BY_RANK[rank], torch.rand(5, 4, *[3] * rank)) for rank in (1, 2, 3)},
    **{
        f"conv_transpose{rank}d": (_BY_RANK[rank], torch.rand(4, 5, *[3] * rank))
        for rank in (1, 2, 3)
    },
    "addcdiv": (_X, _Y, _Y),
    "addcmul": (_X, _Y, _Y),
    "addmm": (torch.rand(3), _X, _M),
    "triu_fill": (_C, -1.5),
    "clamp": (_X, 0.3, 0.6),
    "clamp_max": (_X, 0.5),
    "clamp_min": (_X, 0.5),
    "clip": (_X, 0.3, 0.6),
    "lerp": (_X, _Y, 0.3),
    "pow": (_X, 2.5),
    "bitwise_not": (_I,),
    "where": (_X > 0.5, _X, _Y),
    "addbmm": (torch.rand(3, 3), _B, _C),
    "addmv": (torch.rand(2), _X, _Y[0]),
    "baddbmm": (torch.rand(2, 3, 3), _B, _C),
    "bmm": (_B, _C),
    "cumprod": (_X, 1),
    "cumsum": (_X, 1),
    "dot": (_X[0], _Y[0]),
    "einsum": ("ij,jk->ik", _X, _M),
    "inner": (_X, _Y),
    "kron": (_X, _M),
    "matmul": (_X, _M),
    "mm": (_X, _M),
    "mv": (_X, _Y[0]),
    "outer": (_X[0], _Y[1]),
    "tensordot": (_X, _M, 1),
    "logsumexp": (_X, 1),
    "broadcast_to": (_X, (3, 2, 4)),
    "chunk": (_X, 2, 1),
    "diag": (_X[0],),
    "diagonal": (_C,),
    "flip": (_X, (0, 1)),
    "gather": (_X, 1, _I % 4),
    "index_add": (_X, 0, torch.tensor([1, 0]), _Y),
    "index_copy": (_X, 0, torch.tensor([1, 0]), _Y),
    "index_fill": (_X, 1, torch.tensor([2]), 4.0),
    "index_select": (_X, 1, torch.tensor([2, 0])),
    "masked_fill": (_X, _P, 3.0),
    "masked_select": (_X, _P),
    "meshgrid": (_X[0], _Y[0]),
    "movedim": (_B, 0, 2),
    "narrow": (_X, 1, 1, 2),
    "permute": (_B, (2, 0, 1)),
    "repeat_interleave": (_X, 2, 1),
    "reshape": (_X, (4, 2)),
    "roll": (_X, 1),
    "scatter": (_X, 1, _I % 4, _Y),
    "scatter_add": (_X, 1, _I % 4, _Y),
    "select": (_X, 1, 2),
    "split": (_X, 1),
    "swapaxes": (_X, 0, 1),
    "swapdims": (_X, 0, 1),
    "take": (_X, _I),
    "take_along_dim": (_X, _I % 4, 1),
    "tensor_split": (_X, 2, 1),
    "tile": (_X, (2, 1)),
    "topk": (_X, 2),
    "transpose": (_X, 0, 1),
    "unflatten": (_X, 1, (2, 2)),
    "unsqueeze": (_X, 1),
    "expand": (_X, 3, 2, 4),
    "expand_as": (_X, torch.rand(3, 2, 4)),
    "repeat": (_X, 2, 1),
    "type_as": (_X, _I),
    "view": (_X, 4, 2),
    "view_as": (_X, torch.rand(8)),
    "batch_norm": (_X, torch.rand(4), torch.rand(4) + 1),
    "bilinear": (_X, _Y, torch.rand(3, 4, 4)),
    "dropout": (_X, 0.5, False),
    "embedding": (_I, torch.rand(8, 3)),
    "embedding_bag": (_I, torch.rand(8, 3)),
    "fold": (torch.rand(1, 12, 4), (3, 3), (2, 2)),
    "grid_sample": (_2D, torch.rand(2, 3, 3, 2), "bilinear", "zeros", False),
    "group_norm": (_1D, 2),
    "interpolate": (_2D, None, 2),
    "layer_norm": (_X, (4,)),
    "rms_norm": (_X, (4,)),
    "linear": (_X, torch.rand(3, 4)),
    "local_response_norm": (_1D, 2),
    "log_softmax": (_X, -1),
    "softmax": (_X, -1),
    "softmin": (_X, -1),
    "one_hot": (_I, 8),
    "pad": (_X, (1, 2)),
    "pixel_shuffle": (_2D, 2),
    "pixel_unshuffle": (_2D, 2),
    "prelu": (_X, torch.tensor([0.3])),
    "scaled_dot_product_attention": (_B, _B, _B),
    "threshold": (_X, 0.5, -1.0),
    "unfold": (_2D, (2, 2)),
    "instance_norm": (_1D,),
    "binary_cross_entropy": (_X, _X.flip(1)),
    "binary_cross_entropy_with_logits": (_X, _X.flip(1)),
    "cosine_embedding_loss": (_X, _Y, _SIGNS),
    "cross_entropy": (_X, _LABELS),
    "ctc_loss": (_SEQUENCE, torch.tensor([[1, 2], [3, 1]]), _LABELS + 3, _LABELS // 2 + 1),
    "gaussian_nll_loss": (_X, _Y, _Y),
    "hinge_embedding_loss": (_X, _SIGNS[:, None].expand(2, 4)),
    "margin_ranking_loss": (_X[:, 0], _X[:, 1], _SIGNS),
    "nll_loss": (_X, _LABELS),
    "soft_margin_loss": (_X, _SIGNS[:, None].expand(2, 4)),
    "triplet_margin_loss": (_X, _Y, _X.flip(1)),
}
"""Arguments of every operator that takes more than `_X`."""

_HOMES = {name: home for home, names in _FAMILIES for name in names.split()}


def _map(change: Callable[[Tensor], Tensor], value: object) -> object:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list):
        return [_map(change, part) for part in value]
    return value


def _tensors(found: object) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return list(found) if isinstance(found, tuple | list) else []


def _samples(name: str) -> _Args:
    return _SAMPLES.get(name, (_X,))


def _reference(name: str) -> object:
    """What torch gives."""
    function: Callable[..., object] = getattr(_HOMES[name], name)
    return function(*_samples(name))


@pytest.mark.filterwarnings("ignore:reduction. 'mean'", "ignore:torch.meshgrid")
@pytest.mark.parametrize("name", _HOMES)
def test_operators_give_what_torch_gives(name: str) -> None:
    operator = getattr(samba.functional, name)
    assert getattr(samba, name) is operator
    found = operator(*[_map(samba.SambaTensor, value) for value in _samples(name)])
    expected = _reference(name)
    ours, theirs = _tensors(found), _tensors(expected)
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert type(our) is samba.SambaTensor
        assert our.dtype is their.dtype
        assert torch.equal(our.nan_to_num().data, their.nan_to_num())
    if not theirs:
        assert found == expected


class _Calls(nn.Module):
    def __init__(self, name: str, constants: _Args) -> None:
        super().__init__()
        self._operator, self._constants = getattr(samba.functional, name), constants

    def forward(self, *tensors: Tensor) -> object:
        rest = iter(tensors)
        return self._operator(
            *[next(rest) if isinstance(value, Tensor) else value for value in self._constants]
        )


_EXPORTED = (
    "addmm triu_fill add matmul linear conv2d gelu layer_norm masked_fill cross_entropy expand "
    "reshape permute t index_select cumsum flatten sigmoid dropout embedding pad topk"
)


@pytest.mark.parametrize("name", _EXPORTED.split())
def test_operators_are_recorded_in_a_model(name: str) -> None:
    args = _samples(name)
    tensors = tuple(value for value in args if isinstance(value, Tensor))
    program = torch.export.export(_Calls(name, args), tensors)
    assert len(program.graph.nodes) > len(tensors) + 1
    for found, expected in zip(
        _tensors(program.module()(*tensors)), _tensors(_reference(name)), strict=True
    ):
        assert torch.equal(found, expected)


def test_where_torch_has_two_functions_it_is_that_of_nn() -> None:
    """torch.embedding takes the weight first, torch.dropout has no default rate."""
    assert samba.embedding(samba.tensor([1]), samba.eye(3)).tolist() == [[0, 1, 0]]
    assert samba.functional.dropout(samba.ones(4), training=False).tolist() == [1] * 4


@pytest.mark.parametrize("name", ["add", "matmul", "gelu", "addmm", "expand"])
def test_results_cannot_be_written_somewhere(name: str) -> None:
    with pytest.raises(samba.SambaError, match=rf"samba\.{name} does not take out="):
        getattr(samba.functional, name)(*_samples(name), out=torch.empty(0))
    getattr(samba.functional, name)(*_samples(name), out=None)


def test_addmm_with_a_transposed_matrix() -> None:
    bias, weight = torch.rand(3), torch.rand(3, 4)
    expected = torch_functional.linear(_X, weight, bias)
    found = samba.addmm(bias, _X, weight, is_transposed=True)
    assert torch.allclose(found, expected)
    assert torch.equal(samba.addmm(bias, _X, weight.T), torch.addmm(bias, _X, weight.T))
    scaled = samba.addmm(bias, _X, weight, beta=0.5, alpha=2, is_transposed=True)
    assert torch.allclose(scaled, 0.5 * bias + 2 * (_X @ weight.T))


def test_addmm_of_batches() -> None:
    bias, weight = torch.rand(5), torch.rand(5, 4)
    expected = torch_functional.linear(_B, weight, bias)
    assert torch.allclose(samba.addmm(bias, _B, weight, is_transposed=True), expected)
    nothing = torch.full((5,), math.nan)
    found = samba.addmm(nothing, _B, weight, beta=0, alpha=2, is_transposed=True)
    assert torch.allclose(found, 2 * (_B @ weight.T))


def test_triu_fill_keeps_the_diagonal() -> None:
    found = samba.triu_fill(samba.ones(2, 3, 3), float("-inf"))
    inf = math.inf
    assert found.tolist() == [[[1, -inf, -inf], [1, 1, -inf], [1, 1, 1]]] * 2
    wide = samba.triu_fill(samba.ones(2, 3, dtype=torch.int32), 7)
    assert wide.tolist() == [[1, 7, 7], [1, 1, 7]]


def test_shape_errors_are_those_of_torch() -> None:
    with pytest.raises(RuntimeError, match=r"size of tensor a \(2\) must match the size of tensor"):
        samba.add(samba.ones(2), samba.ones(3))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("groupby", "documented nowhere in public"),
        ("matmull", "did you mean 'matmul'"),
        ("qqqqqq", "has no operator 'qqqqqq'$"),
    ],
)
def test_operators_that_are_missing(name: str, reason: str) -> None:
    with pytest.raises(AttributeError, match=reason):
        getattr(samba.functional, name)
    with pytest.raises(AttributeError, match=name):
        getattr(samba, name)


def test_operators_are_listed() -> None:
    assert {"add", "triu_fill"} <= set(dir(samba.functional))
    assert samba.functional.add.__name__ == "add"
    assert "alpha" in (samba.functional.add.__doc__ or "")
    assert "is_transposed" in inspect.signature(samba.functional.addmm).parameters


def test_patterns_are_those_of_their_modules() -> None:
    """They are imported from the functions and from modules of their own."""
    patterns = {name: getattr(home, name) for home, names in PATTERNS for name in names.split()}
    assert sorted(patterns) == sorted({*samba.functional.__all__} - {*_HOMES})
    for name, pattern in patterns.items():
        assert getattr(samba.functional, name) is getattr(samba, name) is pattern
