"""Weights without content, in the form in which PyTorch computes with shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


@contextmanager
def stand_ins(module: torch.nn.Module) -> Iterator[None]:
    """Let fake tensors on the host stand for what of `module` is on the `meta` device.

    They get along with tensors that have content, such as those that `forward` makes, which PyTorch
    does not multiply with tensors on `meta`. Tied weights stay tied.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[int, torch.Tensor] = {}
    replaced: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor]] = []
    for part in module.modules():
        for kind in (part._parameters, part._buffers):
            table = cast("dict[str, torch.Tensor | None]", kind)
            for name, tensor in table.items():
                if tensor is not None and tensor.is_meta:
                    replaced.append((table, name, tensor))
                    if id(tensor) not in made:
                        made[id(tensor)] = _stand_in(tensor, mode)
    try:
        for table, name, tensor in replaced:
            table[name] = made[id(tensor)]
        yield
    finally:
        for table, name, tensor in replaced:
            table[name] = tensor


def _stand_in(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), mode:
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, tensor.requires_grad)
        return made
