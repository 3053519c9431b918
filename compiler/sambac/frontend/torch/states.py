"""Which tensors of a program live from step to step: its parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram


@dataclass(frozen=True)
class ModuleStates:
    """Parameters and buffers by qualified name, in the order of the module.

    `content` has each tensor once; `aliases` maps further names of it (tied weights) to the first.
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
            content[name] = tensor
    return ModuleStates(
        content=content,
        parameters=tuple(name for name in parameters if name in content),
        frozen=frozenset(name for name in parameters if not parameters[name].requires_grad),
        buffers=tuple(name for name in buffers if name in content),
        aliases=aliases,
    )


def has_no_content(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` has a shape alone (PyTorch's `meta` device)."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)
