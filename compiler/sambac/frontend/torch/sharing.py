"""Parameters that train, and tensors that have the same memory under another name.

An optimizer of PyTorch changes both at once. In a program each state has memory of its own, and
what a module holds without registering it is a constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch.export import ExportedProgram

from pef.wording import listed
from sambac.errors import CompileError


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether the elements of two tensors lie in overlapping parts of one memory."""
    # Recorded tensors have no addresses, but storages that can be compared.
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    (start, end), (begin, stop) = _extent(one), _extent(other)
    return start < stop and begin < end


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where in its storage the elements of `tensor` begin and end, in bytes."""
    start = int(tensor.storage_offset())
    if tensor.numel() == 0:
        return start * tensor.itemsize, start * tensor.itemsize
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    end = start + 1 + int(sum((size - 1) * step for size, step in pairs))
    return start * tensor.itemsize, end * tensor.itemsize


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
    by_storage: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for state, tensor in reversed(once.values()):
        by_storage.setdefault(tensor.untyped_storage()._cdata, []).append((state, tensor))
    for first, second in chain.from_iterable(map(_overlapping, by_storage.values())):
        if not trained.isdisjoint((id(states[first]), id(states[second]))):
            raise CompileError(
                f"{name} has {first} and {second} in one memory, so that training one changes the "
                "other, but a program has two; let them be one in __init__ (b.weight = a.weight), "
                "or give each memory of its own, with clone()"
            )


def _overlapping(held: list[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, str]]:
    """Yield tensors of one storage that overlap: each with the one before that reaches farthest."""
    held = sorted(held, key=lambda item: _extent(item[1]))
    farthest = held[0]
    for state, tensor in held[1:]:
        if share_memory(farthest[1], tensor):
            yield farthest[0], state
        farthest = max(farthest, (state, tensor), key=lambda item: _extent(item[1])[1])


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
