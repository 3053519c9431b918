"""Results that are what was given, or have memory of their own, as PyTorch says when it runs.

    aten.lift(x)                           x itself
    native_dropout(x, p, train=False)      x.clone()

Descriptions of tensors, which recordings compute with, have another tensor for the first, and for
the second the tensor itself. What is written to one of both would be read, or not, by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


def lift(self: Tensor) -> Tensor:
    """Return what is given."""
    return self


def native_dropout(input: Tensor, p: float, train: bool | None, **outs: Tensor) -> Any:
    """Drop numbers of a copy, which may drop none; `outs` are tensors that take the results."""
    return _aten.native_dropout(input.clone(), p, train, **outs)


_LIFTS = (_aten.lift, _aten.lift.default, _aten.lift_fresh, _aten.lift_fresh.default)
_DROPOUTS = (torch.native_dropout, _aten.native_dropout, _aten.native_dropout.default)

AS_WHEN_RUN: Mapping[object, Callable[..., Any]] = MappingProxyType(
    {**dict.fromkeys(_LIFTS, lift), **dict.fromkeys(_DROPOUTS, native_dropout)}
)
"""What does so in place of an operator."""
