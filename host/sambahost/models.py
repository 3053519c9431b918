"""Torch modules: what they hold, put aside and put back; who wrote to one, or froze it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from pef.warned import warn
from pef.wording import listed


@contextmanager
def without_values(*models: nn.Module) -> Iterator[None]:
    """Make the parameters and buffers of `models` shapes alone for a while.

    A program compiled meanwhile holds no weights. What is one tensor, in one model or in several,
    stays one.
    """
    replaced: dict[int, Tensor] = {}
    modules = dict.fromkeys(module for model in models for module in model.modules())
    tables = [
        cast(dict[str, Tensor | None], table)
        for module in modules
        for table in (module._parameters, module._buffers)
    ]
    before = [dict(table) for table in tables]
    for table in tables:
        for name, tensor in table.items():
            if tensor is not None:
                table[name] = replaced.setdefault(id(tensor), _described(tensor))
    try:
        yield
    finally:
        for table, content in zip(tables, before, strict=True):
            table.update(content)


def _described(tensor: Tensor) -> Tensor:
    """Return a plain tensor of the same kind without values."""
    with torch._C.DisableTorchFunctionSubclass():
        empty = torch.empty_like(tensor.detach().as_subclass(Tensor), device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Let `module` train for a while, or evaluate: without dropout, with the statistics it has."""
    before = [(part, part.training) for part in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for part, trained in before:
            part.training = trained


def tried(part: nn.Module, sample: Sequence[Tensor], *, training: bool) -> tuple[Tensor, ...]:
    """Return what `part` gives for a sample in one of its modes, by torch.

    Buffers that it moves stay as they are, and so do torch's random numbers.
    """
    buffers = {name: tensor.clone() for name, tensor in part.named_buffers()}
    given = tuple(tensor.clone() for tensor in sample)
    with in_mode(part, training=training), torch.no_grad(), torch.random.fork_rng(devices=()):
        found: tuple[Tensor, ...] = torch.func.functional_call(part, buffers, given)
    return found


class Version:
    """Tensors, those of a module, and how often each was written to, at one time.

    It keeps them, so that none that is made later can be taken for one of them.
    """

    def __init__(self, tensors: Iterable[Tensor | None]) -> None:
        self._tensors = [tensor for tensor in tensors if tensor is not None]
        self._marks = [mark(tensor) for tensor in self._tensors]

    def is_that_of(self, other: Version) -> bool:
        """Return whether nothing has changed between the two."""
        return (
            self._marks == other._marks
            and None not in self._marks
            and all(a is b for a, b in zip(self._tensors, other._tensors, strict=True))
        )


def mark(tensor: Tensor) -> tuple[int, int] | None:
    """Return what a write to `tensor` changes, None where torch does not count writes."""
    return None if tensor.is_inference() else (tensor._version, tensor.data_ptr())


class FreezeWatch:
    """Tells, once each, of parameters that are frozen after a program was compiled to train them.

    `trained` are what the program trains, by the names that users know. A program trains what it
    was compiled for, so that freezing one has no effect on it.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter] | None = None) -> None:
        found = dict(trained or {})
        self.trained: Mapping[str, nn.Parameter] = found
        self._untold = {name: item for name, item in found.items() if item.requires_grad}

    def tell(self, program: str) -> None:
        """Warn of what was frozen since the last call; `program` is what trains it all the same."""
        frozen = [name for name, item in self._untold.items() if not item.requires_grad]
        if not frozen:
            return
        for name in frozen:
            del self._untold[name]
        warn(
            f"{program} goes on training {listed(frozen, separator=', ')}, frozen since by "
            "requires_grad = False: it trains what it was compiled for. Compile it again to leave "
            "them as they are"
        )
