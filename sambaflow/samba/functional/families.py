"""Which operators there are, by family, and how they become those of `samba.functional`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from sambaflow.samba import sn_private
from sambaflow.samba.errors import SambaError

from . import own, stir

Operator: TypeAlias = Callable[..., object]

_ARITHMETIC = """
    abs absolute acos add addcdiv addcmul asin atan atan2 ceil clamp clamp_max clamp_min clip
    copysign cos cosh div divide erf erfc exp exp2 expm1 floor floor_divide fmod frac heaviside
    hypot lerp log log10 log1p log2 maximum minimum mul multiply nan_to_num neg negative pow
    reciprocal remainder round rsqrt rsub sigmoid sign sin sinh sqrt square sub subtract tan tanh
    true_divide trunc
"""
_LOGICAL = """
    all any bitwise_and bitwise_not bitwise_or bitwise_xor eq equal ge greater greater_equal gt
    isclose isfinite isinf isnan le less less_equal logical_and logical_not logical_or logical_xor
    lt ne not_equal where
"""
_TENSOR_ARITHMETIC = """
    addbmm addmv baddbmm bmm cumprod cumsum dot einsum inner kron matmul mm mv outer tensordot
"""
_REDUCE = """
    amax amin argmax argmin count_nonzero logsumexp max mean median min norm prod std std_mean sum
    var var_mean
"""
_TENSOR_OPERATORS = """
    argsort broadcast_to cat chunk clone concat concatenate diag diagonal dstack flatten flip
    gather hstack index_add index_copy index_fill index_select masked_fill masked_select meshgrid
    movedim narrow nonzero permute ravel repeat_interleave reshape roll rot90 scatter scatter_add
    select sort split squeeze stack swapaxes swapdims t take take_along_dim tensor_split tile topk
    transpose tril triu unbind unflatten unsqueeze vstack
"""
_METHODS = "contiguous expand expand_as repeat type_as view view_as"
_LAYERS = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear
    celu conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity
    dropout elu embedding embedding_bag fold gelu glu grid_sample group_norm hardsigmoid hardswish
    hardtanh instance_norm interpolate layer_norm leaky_relu linear local_response_norm log_softmax
    logsigmoid max_pool1d max_pool2d max_pool3d mish normalize one_hot pad pixel_shuffle
    pixel_unshuffle prelu relu relu6 rms_norm scaled_dot_product_attention selu silu softmax
    softmin softplus softsign tanhshrink threshold unfold
"""
_LOSSES = """
    binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy
    ctc_loss gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss
    mse_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss
"""
PATTERNS: tuple[tuple[object, str], ...] = (
    (stir, "sn_fma sn_imm sn_iteridx sn_reduce sn_select sn_zipmapreduce"),
    (sn_private, "sn_gather sn_multinomial sn_scatter"),
)
"""Where the parallel patterns are, and their names."""

_FAMILIES: tuple[tuple[object, str], ...] = (
    (torch, _ARITHMETIC),
    (torch, _LOGICAL),
    (torch, _TENSOR_ARITHMETIC),
    (torch, _REDUCE),
    (torch, _TENSOR_OPERATORS),
    (Tensor, _METHODS),
    (functional, _LAYERS),
    (functional, _LOSSES),
    (own, "addmm triu_fill"),
)
"""Where the functions are, and their names."""

_ABSENT = {
    "groupby": "what it returns is documented nowhere in public",
}
"""Operators that applications know and this package leaves out, and why."""


def missing(name: str) -> str:
    """Return the sentence for a name that no operator has."""
    start = f"samba.functional has no operator {name!r}"
    if name in _ABSENT:
        return f"{start}: {_ABSENT[name]}"
    near = get_close_matches(name, OPERATORS, n=1)
    return f"{start}; did you mean {near[0]!r}?" if near else start


def _operators() -> Iterator[tuple[str, Operator]]:
    for home, names in _FAMILIES:
        for name in names.split():
            yield name, _operator(name, getattr(home, name))
    for home, names in PATTERNS:
        for name in names.split():
            yield name, getattr(home, name)


def _operator(name: str, function: Operator) -> Operator:
    """Return `function` without `out`, which would write behind the back of the device."""

    def call(*args: object, **kwargs: object) -> object:
        if kwargs.pop("out", None) is not None:
            raise SambaError(f"samba.{name} does not take out=; use the tensor that it returns")
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "sambaflow.samba.functional"
    call.__doc__ = function.__doc__
    call.__dict__["__wrapped__"] = function  # whose parameters are told, where they are known
    return call


OPERATORS: dict[str, Operator] = dict(_operators())
"""Every operator by its name."""
