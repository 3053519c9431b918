"""Buffers to which `forward` assigns tensors.

    self.mean = 0.9 * self.mean + 0.1 * x.mean(0)

torch.export records some of these as new values of the buffers, if `self` is the module that is
exported, and loses the others. Here they become writes to the buffers, which are always recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

from sambac.errors import CompileError

Buffers: TypeAlias = Mapping[tuple[str, str], torch.Tensor | None]
"""What buffers hold, by the path of the module and the name there."""


def buffers_of(module: torch.nn.Module) -> Buffers:
    """Return the buffers of `module`, whose path is empty, and of those inside of it."""
    return {
        (path, name): tensor
        for path, inner in module.named_modules()
        for name, tensor in inner._buffers.items()
    }


def write_assigned(
    module: torch.nn.Module, before: Buffers, computed: Callable[[object], bool]
) -> None:
    """Write what was assigned to buffers of `module`, which were `before`, to these.

    What does not fit the buffer is left out if it is the same in every call. Raises `CompileError`
    if it was `computed` from inputs or from buffers.
    """
    for (path, name), new in buffers_of(module).items():
        old = before.get((path, name))
        if new is None or new is old:
            continue
        if old is not None and (old.shape, old.dtype) == (new.shape, new.dtype):
            with torch.no_grad():
                old.copy_(new)
        elif computed(new):
            raise CompileError(
                f"{type(module).__name__} assigns {_described(new)} to the buffer "
                f"{f'{path}.{name}'.removeprefix('.')}, which is {_described(old)}, with values "
                "that depend on inputs or on earlier calls; let it keep its shape and type, or "
                "return it"
            )


def put_back(module: torch.nn.Module, before: Buffers) -> None:
    """Let the buffers of `module` be what they were, and None those that there were not."""
    for path, name in buffers_of(module):
        module.get_submodule(path)._buffers[name] = before.get((path, name))


def _described(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "None"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
