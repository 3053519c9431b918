"""Which parameters one chain of operators updates together, and how they lie side by side.

A chain of a few kernels costs more to start than to run on a small parameter, so the parameters of
one optimizer, their gradients and each kind of state are laid out one after the other, as flat
vectors over contiguous memory, and updated by one chain. A large parameter is a pack of its own:
vectors have faster kernels than tensors of other ranks.

There are no gaps between members, because gradients share their memory with activations: what lay
in a gap would get into the norm. Members whose size is a multiple of 64 bytes come first, so only
those after them begin at odd places.

The vectors are laid out as matrices for the kernels of the updates (`in_rows`). Each has lanes,
which threads share (`graph.lanes`). A large one is rows that a cache holds, of lanes each, so that
updates can go row by row. `variants.chunks` says what is made of it; docs/decisions/optimizers.md
how much it gains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import prod

import onnx_ir as ir

from sambac.facts import Pack
from sambac.graph.editor import rank_of, shape_of
from sambac.graph.lanes import LANES, in_lanes

from .selection import ParameterGroup
from .updates import is_elementwise

_ALIGNMENT = 64
_CHUNK = 1 << 20
"""Bytes at which a pack is full: the vectors of one chain of kernels stay in cache."""


@dataclass(frozen=True)
class ParameterSet:
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

    def pack(self, called: Callable[[str], str]) -> Pack:
        """Return the layout of what its members have, each `called` so after its name."""
        members = tuple(zip(map(called, self.parameters), self.offsets, strict=True))
        return Pack(called(self.name), self.size, members)


def parameter_sets(
    groups: Sequence[ParameterGroup],
    weights: Mapping[str, ir.Value],
    *,
    pack: bool,
    alone: Collection[str] = (),
) -> tuple[ParameterSet, ...]:
    """Return the sets of `groups`, in order, then one for each parameter without an optimizer.

    Parameters in `alone` are in no pack.
    """
    sets: list[ParameterSet] = []
    for group in groups:
        packable = pack and is_elementwise(group.optimizer)
        together = [name for name in group.parameters if packable and name not in alone]
        sets += _packs(group.name, together, weights)
        packed = frozenset(together)
        sets += [
            ParameterSet(name, group.name, (name,))
            for name in group.parameters
            if name not in packed
        ]
    taken = {name for each in sets for name in each.parameters}
    return (*sets, *(ParameterSet(name, "", (name,)) for name in weights if name not in taken))


def _packs(
    group: str, names: Sequence[str], weights: Mapping[str, ir.Value]
) -> Iterator[ParameterSet]:
    """Yield the sets of `group`; parameters keep their order within an element type."""
    types = {name: int(weights[name].dtype or 0) for name in names}
    ordered = sorted(names, key=lambda name: types[name])
    number = 0
    for _, alike in groupby(ordered, key=lambda name: types[name]):
        for chunk in _chunks(tuple(alike), weights):
            if len(chunk) == 1 and rank_of(weights[chunk[0]]) == 1:
                yield ParameterSet(chunk[0], group, tuple(chunk))
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
) -> ParameterSet:
    ordered = sorted(parameters, key=lambda name: _bytes(weights[name]) % _ALIGNMENT != 0)
    *offsets, size = accumulate((_bytes(weights[name]) for name in ordered), initial=0)
    return ParameterSet(name, group, tuple(ordered), tuple(offsets), size, packed=True)


def _bytes(value: ir.Value) -> int:
    assert value.dtype is not None
    return prod(shape_of(value)) * value.dtype.numpy().itemsize


ROW_BYTES = 1 << 19
"""Of the longest row: a handful of these fits the second-level cache of most processors."""
SHORTEST_BYTES = ROW_BYTES // 8
"""Of the shortest row: for shorter ones, to begin with a row takes what the cache saves."""
_LEAST_BYTES = 3 << 18
"""What a vector needs to be worth it: smaller ones stay in a cache from operator to operator."""


def in_rows(size: int, itemsize: int) -> tuple[int, ...]:
    """Return the shape of `size` bytes of elements.

    It is [rows, lanes, length] if the vector is large, else [lanes, length] if it is long enough,
    and [length] where neither fits. Rows are equally long and begin at multiples of 64 bytes.
    """
    elements = size // itemsize
    if size >= _LEAST_BYTES:
        for row in range(ROW_BYTES, SHORTEST_BYTES - 1, -_ALIGNMENT):
            if size % row == 0:
                return size // row, LANES, row // itemsize // LANES
    return in_lanes(elements)
