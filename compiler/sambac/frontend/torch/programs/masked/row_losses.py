"""Losses of classes of rows whose number depends on values, in operators of one row at a time.

    cross_entropy(x, t)  ->  mean(-log_softmax(x)[row, t])
    nll_loss(x, t)       ->  mean(-x[row, t])

as PyTorch looks at the number of rows while it takes them apart. What x[mask] and t[mask] are is
such, and what is computed of them: each row of its own, they can be kept at all places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

_aten = torch.ops.aten
_NONE, _AVERAGE = 0, 1
"""What PyTorch calls the reductions of losses: of none of the elements, their mean."""
_IGNORED = -100


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = _AVERAGE,
    ignore_index: int = _IGNORED,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of rows `x` [n, C] and classes `target` [n]."""
    logs = torch.log_softmax(x, 1)
    if not label_smoothing:
        return nll_loss(logs, target, weight, reduction, ignore_index)
    given, share = target != ignore_index, label_smoothing / x.shape[1]
    smooth = -(logs if weight is None else logs * weight).sum(1) * share
    chosen, weights = _of_classes(logs, target, weight, given)
    losses = torch.where(given, chosen * (1 - label_smoothing) + smooth, 0.0)
    return _reduced(losses, weights, reduction)


def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = _AVERAGE,
    ignore_index: int = _IGNORED,
) -> Tensor:
    """The negative log likelihood of classes `target` [n], of which `x` [n, C] has the logs."""
    given = target != ignore_index
    chosen, weights = _of_classes(x, target, weight, given)
    return _reduced(torch.where(given, chosen, 0.0), weights, reduction)


def _of_classes(
    logs: Tensor, target: Tensor, weight: Tensor | None, given: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss of each row by its class, and its weight, 0 where it is not `given`."""
    if str(logs.shape[0]) != str(target.shape[0]):  # two masks, which may be the same or not
        torch._check(logs.shape[0] == target.shape[0])  # type: ignore[no-untyped-call]  # torch's
        logs = torch.where(given.unsqueeze(1), logs, 0.0)  # a run of other numbers fails
    classes = torch.where(given, target, 0)
    chosen = -logs.gather(1, classes.unsqueeze(1)).squeeze(1)
    if weight is None:
        return chosen, given.to(logs.dtype)
    weights = weight.index_select(0, classes)
    return chosen * weights, torch.where(given, weights, 0.0)


def _reduced(losses: Tensor, weights: Tensor, reduction: int) -> Tensor:
    if reduction == _NONE:
        return losses
    total = losses.sum()
    return total / weights.sum() if reduction == _AVERAGE else total


ROW_LOSSES: Mapping[Callable[..., object], Callable[..., object]] = MappingProxyType({
    _aten.cross_entropy_loss.default: cross_entropy,
    _aten.nll_loss_nd.default: nll_loss,
})  # fmt: skip


def losses_of_rows(
    program: ExportedProgram,
) -> Mapping[Callable[..., object], Callable[..., object]]:
    """Return what losses of classes in `program` become, where it has such of unknown rows."""
    found = {}
    for target, spelled in ROW_LOSSES.items():
        nodes = program.graph.find_nodes(op="call_function", target=target)
        if any(_has_unknown_rows(node.args[0].meta["val"]) for node in nodes):
            found[target] = _of_unknown_rows(spelled)
    return found


def _has_unknown_rows(x: Tensor) -> bool:
    return x.dim() == len(("rows", "classes")) and bool(free_unbacked_symbols(x.shape[0]))


def _of_unknown_rows(spelled: Callable[..., object]) -> Callable[..., object]:
    """Return `spelled` for rows of an unknown number and whole classes; other losses stay."""

    def rule(x: Tensor, target: Tensor, *settings: object, **named: object) -> object:
        if not _has_unknown_rows(x) or target.is_floating_point():
            return NotImplemented
        return spelled(x, target, *settings, **named)

    return rule
