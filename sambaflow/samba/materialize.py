"""Giving values to tensors that have none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.tensors.tensor import SambaTensor
from sambahost.models import mark

from .errors import SambaError


@checked()
@contextmanager
def materialize(model: nn.Module) -> Iterator[nn.Module]:
    """Give all parameters of `model` values within the block, and yield the model.

    Afterwards those that had none before have none again, unless they were changed in the block,
    got a gradient, or are part of a result that is still alive. Equal seeds give equal values, each
    time.
    """
    lazy = [
        tensor
        for tensor in model.parameters()
        if isinstance(tensor, SambaTensor) and not tensor.has_data
    ]
    for tensor in lazy:
        tensor.materialize_()
    before = [mark(tensor) for tensor in lazy]
    try:
        yield model
    finally:
        for tensor, marked in zip(lazy, before, strict=True):
            same = tensor.has_data and mark(tensor) == marked
            if same and tensor.grad is None:
                with suppress(SambaError):  # something needs the values
                    tensor.clear_data()
