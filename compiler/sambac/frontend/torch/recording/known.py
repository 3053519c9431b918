"""Buffers that no checkpoint has and no call writes: what code decides by them is known.

    self.register_buffer("stride", torch.tensor(2), persistent=False)
    ...
    if x.shape[-1] % self.stride: ...

Control flow that depends on values cannot be recorded. These are the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch._export.utils import _is_cia_op
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export import _trace as tracing
from torch.fx import Graph, Node
from torch.fx.experimental import proxy_tensor

from sambac.frontend.torch.memory_of_nodes import (
    base_of,
    written_by,
    written_in_lists,
    written_statistics,
)
from sambac.frontend.torch.own_operators import parts_of
from sambac.frontend.torch.patching import replaced
from sambac.frontend.torch.states import share_memory

_FEW = 16
"""The most elements of a buffer by which code is expected to decide."""

_aten = torch.ops.aten
_NAMES = (
    *(_aten.dequantize.self, _aten.lift.default, _aten._unsafe_view.default),
    *(_aten.unsafe_split.Tensor, _aten.unsafe_split_with_sizes.default),
)
"""Operators that may give what they are given, beside those that are made of others."""


def recorded(module: torch.nn.Module, record: Callable[[], ExportedProgram]) -> ExportedProgram:
    """Return what `record` makes of `module` with the values of buffers that stay as they are.

    It records again where some are written.
    """
    names = _known(module)
    if not names:
        return record()
    with _with_values(names):
        program = record()
    written = names if _writes_unseen(program) else names & _written(program)
    if not written:
        return program
    with _with_values(names - written):
        return record()


def _known(module: torch.nn.Module) -> set[str]:
    """Return the buffers of a few elements with content, which no checkpoint and nobody changes."""
    named = dict(module.named_modules(remove_duplicate=False))
    small: dict[str, Tensor] = {}
    changing: list[Tensor] = list(module.parameters())
    for name, tensor in module.named_buffers(remove_duplicate=False):
        path, _, last = name.rpartition(".")
        if last not in named[path]._non_persistent_buffers_set:
            changing.append(tensor)
        elif not tensor.is_meta and not isinstance(tensor, FakeTensor) and tensor.numel() <= _FEW:
            small[name] = tensor
    return {
        name
        for name, tensor in small.items()
        if not any(share_memory(tensor, other) for other in changing)
    }


def _written(program: ExportedProgram) -> set[str]:
    """Return the buffers that `program` writes, or may write in a graph inside."""
    inside = [part.graph for part in parts_of(program) if part is not program.graph_module]
    given = (base.op == "placeholder" for graph in inside for base in _changed(graph))
    holders = [node for node in program.graph.nodes if _has_graph(node)] if any(given) else []
    handed = chain.from_iterable(node.all_input_nodes for node in holders)
    changed = chain(_changed(program.graph), chain.from_iterable(map(_bases, handed)))
    bases = {base.name for base in changed}
    buffers = program.graph_signature.inputs_to_buffers
    return {buffer for name, buffer in buffers.items() if name in bases}


def _changed(graph: Graph) -> Iterator[Node]:
    """Yield what nodes of `graph` write, each as that of which it may be a view."""
    for writes in (written_by, written_in_lists, written_statistics):
        for node in chain.from_iterable(map(writes, graph.nodes)):
            yield from _bases(node)


def _bases(node: Node) -> Iterator[Node]:
    """Yield what `node` may be a view of, though no schema says so."""
    base = base_of(node)
    is_made_of_others = isinstance(base.target, OpOverload) and _is_cia_op(base.target)
    if is_made_of_others or base.target in _NAMES or _has_graph(base):
        yield from chain.from_iterable(map(_bases, base.all_input_nodes))
    else:
        yield base


def _has_graph(node: Node) -> bool:
    """Tell whether `node` runs a graph inside, which may return what it is given."""
    return isinstance(node.target, HigherOrderOperator)


def _writes_unseen(program: ExportedProgram) -> bool:
    """Tell whether what is computed is written in ways that leave it known while recording."""
    nodes = chain.from_iterable(part.graph.nodes for part in parts_of(program))
    written = chain.from_iterable(map(written_in_lists, nodes))
    buffers = program.graph_signature.inputs_to_buffers
    return any(base.name not in buffers for node in written for base in _bases(node))


@contextmanager
def knowing_few() -> Iterator[None]:
    """Let tensors that `forward` makes of numbers be known up to `_FEW` elements, not one alone.

    So code may decide by them, as by `torch.tensor([1, 2]).min() > 0`.
    """
    limit = "CONSTANT_NUMEL_LIMIT"
    with replaced(fake_tensor, limit, _FEW), replaced(proxy_tensor, limit, _FEW):
        yield


@contextmanager
def _with_values(names: Collection[str]) -> Iterator[None]:
    """Let what stands for buffers called so while a module is recorded know their values."""
    make = tracing._fakify_params_buffers  # type: ignore[attr-defined]

    def made(mode: FakeTensorMode, module: torch.nn.Module) -> dict[str, Any]:
        stand_ins = make(mode, module)
        for name, tensor in module.named_buffers(remove_duplicate=False):
            if name in names and isinstance(fake := stand_ins[name], FakeTensor):
                fake.constant = tensor.clone()  # to which calls may write
                mode.fake_tensor_converter.add_constant_storage_mapping(fake)
        return stand_ins

    with replaced(tracing, "_fakify_params_buffers", made):
        yield
