"""Parameters that train, and tensors that have the same memory under another name.

An optimizer of PyTorch changes both at once. In a program each state has memory of its own, and
what a module holds without registering it is a constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.export import ExportedProgram

from pef.wording import listed
from sambac.errors import CompileError


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors have an element in common."""
    (memory, start, end), (place, begin, stop) = _extent(one), _extent(other)
    return memory == place and start < stop and begin < end and _meet(one, other, begin - start)


def _extent(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Return in which memory the elements of `tensor` begin and end, in bytes.

    All tensors with addresses are in one memory: two storages may be the same, as those of arrays
    are. Recorded tensors and those without values have storages that can be compared.
    """
    held = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
    memory = 0 if held else int(tensor.untyped_storage()._cdata)
    start = tensor.data_ptr() if held else int(tensor.storage_offset()) * tensor.itemsize
    if tensor.numel() == 0:
        return memory, start, start
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return memory, start, start + (1 + int(sum((n - 1) * by for n, by in pairs))) * tensor.itemsize


def _meet(one: torch.Tensor, other: torch.Tensor, distance: int) -> bool:
    """Tell whether two tensors whose extents overlap, `distance` bytes apart, share an element.

    Columns of one matrix do not.
    """
    if one.itemsize != other.itemsize or distance % one.itemsize:
        return True
    offsets = (max(0, -distance) // one.itemsize, max(0, distance) // one.itemsize)
    extents = [_extent(tensor) for tensor in (one, other)]
    sizes = [(end - start) // one.itemsize for _, start, end in extents]
    taken = np.zeros(max(o + n for o, n in zip(offsets, sizes, strict=True)), bool)
    first, second = (
        np.lib.stride_tricks.as_strided(taken[offset:], tensor.shape, tensor.stride())
        for offset, tensor in zip(offsets, (one, other), strict=True)
    )
    first[...] = True
    return bool(second.any())


def require_own_names(program: ExportedProgram, name: str) -> None:
    """Raise `CompileError` if a parameter that trains is a constant of `program` too.

    torch.export makes a constant of what is read from a list or a plain attribute, although the
    module has registered it elsewhere. `name` is what the message calls the module.
    """
    constants = [program.constants[at] for at in program.graph_signature.lifted_tensor_constants]
    found = [
        parameter
        for parameter, tensor in _trained(program).items()
        if any(share_memory(tensor, constant) for constant in constants)
    ]
    if found:
        raise CompileError(
            f"{name} reads its parameters {listed(found, separator=', ')}, or parts of them, from "
            "a list or an attribute that registers nothing, where they would not train; read them "
            "by their own names or from a ParameterList, and take parts in forward"
        )


def require_own_memory(program: ExportedProgram, name: str) -> None:
    """Raise `CompileError` if a parameter that trains shares memory with another state.

    One tensor of several names is one state. `name` is what the message calls the module.
    """
    trained = {id(tensor) for tensor in _trained(program).values()}
    states = {**program.state_dict, **dict(program.named_buffers())}
    once = {id(tensor): (state, tensor) for state, tensor in reversed(states.items())}
    for first, second in _overlapping([*reversed(once.values())]):
        if not trained.isdisjoint((id(states[first]), id(states[second]))):
            raise CompileError(
                f"{name} has {first} and {second} in one memory, so that training one changes the "
                "other, but a program has two; let them be one in __init__ (b.weight = a.weight), "
                "or give each memory of its own, with clone()"
            )


def _overlapping(held: list[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, str]]:
    """Yield the names of tensors that have elements in common, two and two."""
    near: list[tuple[str, torch.Tensor]] = []
    memory, farthest = 0, 0
    for state, tensor in sorted(held, key=lambda item: _extent(item[1])):
        place, start, end = _extent(tensor)
        if place != memory or start >= farthest:
            near, memory, farthest = [], place, 0
        yield from ((other, state) for other, one in near if share_memory(one, tensor))
        near.append((state, tensor))
        farthest = max(farthest, end)


def _trained(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the parameters of `program` that want gradients, by their names."""
    states = {name: program.state_dict[name] for name in program.graph_signature.parameters}
    return {name: tensor for name, tensor in states.items() if tensor.requires_grad}


@contextmanager
def kept_gradients(model: object) -> Iterator[None]:
    """Let the parameters of `model`, if it is a module, want afterwards the gradients they do now.

    Its methods `train` and `eval` may freeze some.
    """
    parameters = [*model.parameters()] if isinstance(model, torch.nn.Module) else []
    before = [parameter.requires_grad for parameter in parameters]
    try:
        yield
    finally:
        for parameter, wanted in zip(parameters, before, strict=True):
            if parameter.requires_grad is not wanted:  # those of no shape yet cannot be asked to
                parameter.requires_grad_(wanted)
