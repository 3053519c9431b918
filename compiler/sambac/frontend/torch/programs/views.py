"""Views that the strides of their operands do not allow, while a program is recorded again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_impls import op_implementations_dict

_STRIDED = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


@contextmanager
def views_of_any_strides() -> Iterator[None]:
    """Let a `view` that the strides of its operand do not allow be a copy while recording.

    What lies in memory how is up to an operator's kernel: attention recorded by its fused kernel
    gives heads beside each other, recorded without it one head after the other.
    """
    before = {op: op_implementations_dict[op] for op in _STRIDED}
    copies: list[OpOverload] = []

    def view(mode: FakeTensorMode, op: OpOverload, x: torch.Tensor, *shape: Any) -> object:
        try:
            return before[op](mode, op, x, *shape)
        except (ValueError, RuntimeError):
            copies.append(op)
            return before[op](mode, op, x, *shape, allow_copy=True)

    op_implementations_dict.update(dict.fromkeys(_STRIDED, view))
    try:
        yield
    finally:
        op_implementations_dict.update(before)
        if copies:
            # Fake tensors keep what an operator gave, and a module's own views stay refused.
            FakeTensorMode.cache_clear()
