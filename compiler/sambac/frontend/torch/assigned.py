"""Buffers to which `forward` assigns tensors.

    self.mean = 0.9 * self.mean + 0.1 * x.mean(0)

torch.export records some of these as new values of the buffers, if `self` is the module that is
exported, and loses the others. Here they become writes to the buffers, which are always recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch.utils import _pytree as pytree

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
    module: torch.nn.Module, before: Buffers, computed: Callable[[object], bool], result: object
) -> object:
    """Write what was assigned to buffers of `module`, which were `before`, to these.

    Return the `result` of the call, in which buffers are what they were. What does not fit the
    buffer is left out if it is the same in every call. Raises `CompileError` if it was `computed`
    from inputs or from buffers, for a buffer of two names of which one is assigned to, and for one
    that becomes a parameter or another buffer.
    """
    after = buffers_of(module)
    writes = []
    for place, new in after.items():
        old = before.get(place)
        if new is None or new is old:
            continue
        if old is not None and (old.shape, old.dtype) == (new.shape, new.dtype):
            _require_together(module, place, before, after)
            _require_apart(module, place, new, before)
            writes.append((old, new.detach().clone()))  # which may be a buffer written to here
        elif computed(new):
            raise CompileError(
                f"{type(module).__name__} assigns {_described(new)} to the buffer "
                f"{_spelled(place)}, which is {_described(old)}, with values "
                "that depend on inputs or on earlier calls; let it keep its shape and type, or "
                "return it"
            )
    kept = pytree.tree_map_only(torch.Tensor, torch.clone, result) if writes else result
    with torch.no_grad():
        for old, new in writes:
            old.copy_(new)
    return kept


def _require_together(
    module: torch.nn.Module, place: tuple[str, str], before: Buffers, after: Buffers
) -> None:
    """Raise `CompileError` if a name of the buffer at `place` is not what that now is."""
    for other, tensor in before.items():
        if tensor is before[place] and after.get(other) is not after[place]:
            raise CompileError(
                f"{type(module).__name__} assigns to the buffer {_spelled(place)}, which is also "
                f"{_spelled(other)}; after the first call they would be two: write with copy_() if "
                "both are meant, or register two tensors"
            )


def _require_apart(
    module: torch.nn.Module, place: tuple[str, str], new: torch.Tensor, before: Buffers
) -> None:
    """Raise `CompileError` if `new`, the buffer at `place`, is another one too, or a parameter."""
    stayed = (other for other, tensor in buffers_of(module).items() if tensor is before.get(other))
    owners = [
        *(_spelled(other) for other in stayed if before[other] is new),
        *(name for name, parameter in module.named_parameters() if _is_view(new, parameter)),
    ]
    if owners:
        raise CompileError(
            f"{type(module).__name__} lets the buffer {_spelled(place)} be {owners[0]}, "
            "whose later changes it would show; assign a copy, with clone()"
        )


def _is_view(tensor: torch.Tensor, of: torch.Tensor) -> bool:
    """Tell whether two tensors have their elements in one memory."""
    # Recorded tensors have no addresses, but storages that can be compared.
    return bool(tensor.untyped_storage()._cdata == of.untyped_storage()._cdata)


def put_back(module: torch.nn.Module, before: Buffers) -> None:
    """Let the buffers of `module` be what they were, and None those that there were not."""
    for path, name in buffers_of(module):
        module.get_submodule(path)._buffers[name] = before.get((path, name))


def _described(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "None"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _spelled(place: tuple[str, str]) -> str:
    return ".".join(filter(None, place))
