"""The tensors that a program holds: parameters and buffers, with content or without.

They live from step to step. Those without content have the form in which PyTorch computes with
shapes alone.

Each has memory of its own in a program, where an optimizer of PyTorch changes at once what shares
memory under other names; and what a module holds without registering it is a constant there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram

from pef.wording import listed
from sambac.errors import CompileError

Rooms: TypeAlias = dict[tuple[int, torch.dtype], torch.Tensor]
"""Tensors that have all of a storage, by this and their type."""


@dataclass(frozen=True)
class ModuleStates:
    """Parameters and buffers by qualified name, in the order of the module.

    `content` has each tensor once, complex ones as pairs of their parts; `aliases` maps further
    names of it (tied weights) to the first.
    `frozen` are the parameters that want no gradient. A buffer that no checkpoint holds and nobody
    writes is a constant and not here, unless it has no content.
    """

    content: Mapping[str, torch.Tensor]
    parameters: tuple[str, ...]
    frozen: frozenset[str]
    buffers: tuple[str, ...]
    aliases: Mapping[str, str]


def states_of(program: ExportedProgram, written: Iterable[str]) -> ModuleStates:
    """Return the states of `program`, which writes the buffers `written`."""
    signature = program.graph_signature
    constants = set(signature.non_persistent_buffers).difference(written)
    parameters = {name: program.state_dict[name] for name in signature.parameters}
    buffers = {
        name: tensor
        for name, tensor in program.named_buffers()
        if name not in constants or has_no_content(tensor)
    }
    first: dict[int, str] = {}
    aliases: dict[str, str] = {}
    content: dict[str, torch.Tensor] = {}
    for name, tensor in {**parameters, **buffers}.items():
        owner = first.setdefault(id(tensor), name)
        if owner != name:
            aliases[name] = owner
        else:
            content[name] = paired(tensor)
    return ModuleStates(
        content=content,
        parameters=tuple(name for name in parameters if name in content),
        frozen=frozenset(name for name in parameters if not parameters[name].requires_grad),
        buffers=tuple(name for name in buffers if name in content),
        aliases=aliases,
    )


def is_complex(item: object) -> bool:
    """Tell whether `item` is a tensor of complex numbers, a type of them, or one of Python's."""
    dtype = item.dtype if isinstance(item, torch.Tensor) else item
    return dtype.is_complex if isinstance(dtype, torch.dtype) else isinstance(item, complex)


def paired(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor`, or the pairs of its parts if it is complex: [..., 2]."""
    return torch.view_as_real(tensor.resolve_conj()) if is_complex(tensor) else tensor


def has_no_content(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` has a shape alone (PyTorch's `meta` device)."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


@contextmanager
def stand_ins(module: torch.nn.Module) -> Iterator[None]:
    """Let fake tensors on the host stand for what of `module` is on the `meta` device.

    They get along with tensors that have content, such as those that `forward` makes, which PyTorch
    does not multiply with tensors on `meta`. Tied weights stay tied, and what shares memory does.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[int, torch.Tensor] = {}
    rooms: Rooms = {}
    replaced: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor]] = []
    for part in module.modules():
        for kind in (part._parameters, part._buffers):
            table = cast("dict[str, torch.Tensor | None]", kind)
            for name, tensor in table.items():
                if tensor is not None and tensor.is_meta:
                    replaced.append((table, name, tensor))
                    if id(tensor) not in made:
                        made[id(tensor)] = _stand_in(tensor, mode, rooms)
    try:
        for table, name, tensor in replaced:
            table[name] = made[id(tensor)]
        yield
    finally:
        for table, name, tensor in replaced:
            table[name] = tensor


def _stand_in(tensor: torch.Tensor, mode: FakeTensorMode, rooms: Rooms) -> torch.Tensor:
    """Return what stands for `tensor`, in one of `rooms` with what shares memory with it."""
    with torch._C.DisableTorchFunction(), mode:
        storage = tensor.untyped_storage()
        room = rooms.get((int(storage._cdata), tensor.dtype))
        if room is None:
            room = torch.empty(storage.nbytes() // tensor.itemsize, dtype=tensor.dtype)
            rooms[int(storage._cdata), tensor.dtype] = room
        made = room.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(made, tensor.requires_grad)
        return made


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
