"""Which parameters are updated together, as one flat vector over contiguous memory.

A chain of a few kernels costs more to start than to run on a small parameter, so the parameters of
one optimizer, their gradients and each kind of state are laid out one after the other and updated
by one chain. A large parameter is a pack of its own: vectors have faster kernels than tensors of
other ranks.

There are no gaps between members, because gradients share their memory with activations: what lay
in a gap would get into the norm. Members whose size is a multiple of 64 bytes come first, so only
those after them begin at odd places. Half precision has no kernels and stays apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import prod

import onnx_ir as ir

from sambac.facts import Pack
from sambac.graph.editor import rank_of, shape_of

from .selection import ParameterGroup
from .terms import HALF
from .updates import is_elementwise

_ALIGNMENT = 64
_CHUNK = 1 << 20
"""Bytes at which a pack is full: the vectors of one chain of kernels stay in cache."""


@dataclass(frozen=True)
class Batch:
    """Parameters of one element type that one chain of operators updates.

    `name` is that of the parameter, or of the pack if `packed`; `group` the name of the optimizer,
    empty for a parameter that has none. `offsets` are in bytes, `size` is that of the whole.
    """

    name: str
    group: str
    parameters: tuple[str, ...]
    offsets: tuple[int, ...] = (0,)
    size: int = 0
    packed: bool = False

    def pack(self, suffix: str) -> Pack:
        """Return the layout of the states `<parameter><suffix>` of its members."""
        names = (f"{parameter}{suffix}" for parameter in self.parameters)
        members = tuple(zip(names, self.offsets, strict=True))
        return Pack(f"{self.name}{suffix}", self.size, members)


def plan_batches(
    groups: Sequence[ParameterGroup],
    weights: Mapping[str, ir.Value],
    *,
    pack: bool,
    alone: Collection[str] = (),
) -> tuple[Batch, ...]:
    """Return the batches of `groups`, in order, then one for each parameter without optimizer.

    Parameters in `alone` are in no pack.
    """
    batches: list[Batch] = []
    for group in groups:
        packable = pack and is_elementwise(group.optimizer)
        together = [
            name
            for name in group.parameters
            if packable and name not in alone and weights[name].dtype not in HALF
        ]
        batches += _packs(group.name, together, weights)
        packed = frozenset(together)
        batches += [
            Batch(name, group.name, (name,)) for name in group.parameters if name not in packed
        ]
    taken = {name for batch in batches for name in batch.parameters}
    return (*batches, *(Batch(name, "", (name,)) for name in weights if name not in taken))


def _packs(group: str, names: Sequence[str], weights: Mapping[str, ir.Value]) -> Iterator[Batch]:
    """Yield the batches of `group`; parameters keep their order within an element type."""
    types = {name: int(weights[name].dtype or 0) for name in names}
    ordered = sorted(names, key=lambda name: types[name])
    number = 0
    for _, alike in groupby(ordered, key=lambda name: types[name]):
        for chunk in _chunks(tuple(alike), weights):
            if len(chunk) == 1 and rank_of(weights[chunk[0]]) == 1:
                yield Batch(chunk[0], group, tuple(chunk))
            else:
                yield _packed(f"{group}.pack{number}", group, chunk, weights)
                number += 1


def _chunks(names: Sequence[str], weights: Mapping[str, ir.Value]) -> Iterator[list[str]]:
    """Yield names in runs of at most `_CHUNK` bytes; what is larger than that stands alone."""
    chunk: list[str] = []
    size = 0
    for name in names:
        more = _bytes(weights[name])
        if more >= _CHUNK:
            yield [name]
            continue
        if chunk and size + more > _CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += more
    if chunk:
        yield chunk


def _packed(
    name: str, group: str, parameters: Sequence[str], weights: Mapping[str, ir.Value]
) -> Batch:
    ordered = sorted(parameters, key=lambda name: _bytes(weights[name]) % _ALIGNMENT != 0)
    *offsets, size = accumulate((_bytes(weights[name]) for name in ordered), initial=0)
    return Batch(name, group, tuple(ordered), tuple(offsets), size, packed=True)


def _bytes(value: ir.Value) -> int:
    assert value.dtype is not None
    return prod(shape_of(value)) * value.dtype.numpy().itemsize
