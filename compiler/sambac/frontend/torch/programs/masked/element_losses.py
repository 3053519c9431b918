"""Losses that are of one element at a time, and then summed up or averaged."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

_aten = torch.ops.aten
LOSSES = (
    _aten.binary_cross_entropy.default,
    _aten.binary_cross_entropy_with_logits.default,
    _aten.hinge_embedding_loss.default,
    _aten.huber_loss.default,
    _aten.kl_div.default,
    _aten.l1_loss.default,
    _aten.margin_ranking_loss.default,
    _aten.mse_loss.default,
    _aten.poisson_nll_loss.default,
    _aten.smooth_l1_loss.default,
    _aten.soft_margin_loss.default,
)
NONE, AVERAGE = 0, 1
"""What PyTorch calls the reductions of losses: of none of the elements, their mean."""


def reduction_of(node: fx.Node) -> tuple[list[Any], int]:
    """Return the positional arguments of a loss, of which it reduces none, and what it did."""
    assert isinstance(node.target, OpOverload)
    arguments = [item for item in node.target._schema.arguments if not item.kwarg_only]
    given: list[Any] = [*node.args, *(item.default_value for item in arguments[len(node.args) :])]
    at = [item.name for item in arguments].index("reduction")
    reduction, given[at] = given[at], NONE
    assert isinstance(reduction, int)
    return given, reduction


def is_reduced(node: fx.Node) -> bool:
    """Tell whether `node` is such a loss, summed up or averaged."""
    return node.target in LOSSES and reduction_of(node)[1] != NONE


def is_of_elements(node: fx.Node) -> bool:
    """Tell whether `node` is such a loss of each element."""
    return node.target in LOSSES and reduction_of(node)[1] == NONE
