"""The tensors that a program holds: parameters and buffers, with content or without.

They live from step to step. Those without content have the form in which PyTorch computes with
shapes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
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
