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
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.export import _trace as tracing

from sambac.frontend.torch.memory_of_nodes import base_of, written_by
from sambac.frontend.torch.patching import replaced

_FEW = 16
"""The most elements of a buffer by which code is expected to decide."""


def recorded(module: torch.nn.Module, record: Callable[[], ExportedProgram]) -> ExportedProgram:
    """Return what `record` makes of `module` with the values of buffers that stay as they are.

    It records again where some are written.
    """
    named = dict(module.named_modules())
    names = {name for name, tensor in module.named_buffers() if _is_known(named, name, tensor)}
    if not names:
        return record()
    with _with_values(names):
        program = record()
    written = names & _written(program)
    if not written:
        return program
    with _with_values(names - written):
        return record()


def _is_known(named: dict[str, torch.nn.Module], name: str, tensor: Tensor) -> bool:
    """Tell whether a buffer of a few elements has content, which checkpoints leave as it is."""
    path, _, last = name.rpartition(".")
    kept = last not in named[path]._non_persistent_buffers_set
    return not (kept or tensor.is_meta or isinstance(tensor, FakeTensor)) and tensor.numel() <= _FEW


def _written(program: ExportedProgram) -> set[str]:
    """Return the buffers that `program` writes, or hands to a graph inside, which may."""
    inside = (node for node in program.graph.nodes if isinstance(node.target, HigherOrderOperator))
    found = {*chain.from_iterable(node.all_input_nodes for node in inside)}
    found.update(chain.from_iterable(map(written_by, program.graph.nodes)))
    bases = {base_of(node).name for node in found}
    buffers = program.graph_signature.inputs_to_buffers
    return {buffer for name, buffer in buffers.items() if name in bases}


@contextmanager
def _with_values(names: Collection[str]) -> Iterator[None]:
    """Let what stands for buffers called so while a module is recorded know their values."""
    make = tracing._fakify_params_buffers  # type: ignore[attr-defined]

    def made(mode: FakeTensorMode, module: torch.nn.Module) -> dict[str, Any]:
        stand_ins = make(mode, module)
        for name, tensor in module.named_buffers():
            if name in names and isinstance(fake := stand_ins[name], FakeTensor):
                fake.constant = tensor.clone()  # to which calls may write
                mode.fake_tensor_converter.add_constant_storage_mapping(fake)
        return stand_ins

    with replaced(tracing, "_fakify_params_buffers", made):
        yield
