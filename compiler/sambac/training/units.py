"""Trained parameters in the graph of a step, with the memory of their gradients and state.

Some are updated together, as one flat vector over contiguous memory. A chain of a few kernels costs
more to start than to run on a small parameter, so the parameters of one optimizer, their gradients
and each kind of state are laid out one after the other and updated by one chain. A large parameter
is a pack of its own: vectors have faster kernels than tensors of other ranks.

There are no gaps between members, because gradients share their memory with activations: what lay
in a gap would get into the norm. Members whose size is a multiple of 64 bytes come first, so only
those after them begin at odd places. Where a gradient is scaled into another place than its own
(`step` says when), its parameter is updated alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from math import prod

import numpy as np
import onnx_ir as ir

from pef.graphs import belonging, gradient_name
from pef.program import SectionType
from pef.symbols import SymbolKind
from sambac.facts import Pack, State
from sambac.graph.editor import rank_of, shape_of

from .selection import ParameterGroup
from .step_graphs import StepGraph
from .updates import Slot, is_elementwise


@dataclass(frozen=True)
class UpdateUnit:
    """A batch in the graph: its parameters, their gradient and their state, as it is by now.

    `parts` holds what its gradient is the sum of, by name: of losses that are balanced, or
    one of half precision before it is scaled. Under an empty name stands the gradient
    itself.
    """

    batch: Batch
    weight: ir.Value
    parts: Mapping[str, ir.Value]
    slots: Mapping[str, ir.Value]

    @property
    def gradient(self) -> ir.Value:
        """The gradient itself."""
        return self.parts[""]


def export_gradients(
    graph: StepGraph, name: str, parts: Mapping[str, ir.Value], *, accumulate: bool
) -> dict[str, ir.Value]:
    """Make the gradients of one parameter outputs, after adding what they were if accumulating.

    They are called `<parameter>__grad`, with `__<loss>` where losses have names.
    """
    exported: dict[str, ir.Value] = {}
    graph.editor.scope = f"grad/{name}/"
    for loss, gradient in parts.items():
        symbol = belonging(gradient_name(name), loss) if loss else gradient_name(name)
        if accumulate:
            so_far = _like(graph, symbol, gradient, State(SymbolKind.GRADIENT))
            total = graph.term(so_far) + graph.term(gradient)
            exported[loss] = graph.overwrite(total, so_far, "next", SectionType.BCKWD)
        else:
            exported[loss] = graph.output(gradient, symbol, SectionType.BCKWD)
    return exported


def add_unit(
    graph: StepGraph,
    batch: Batch,
    weights: Mapping[str, ir.Value],
    gradients: Mapping[str, Mapping[str, ir.Value]],
    kept: Sequence[Slot],
) -> UpdateUnit:
    """Add the state of a batch, and the vectors that span it if it is packed."""
    graph.editor.scope = f"opt/{batch.group}/"
    first = batch.parameters[0]
    states: dict[str, ir.Value] = {}
    for slot in kept:
        for name in batch.parameters:
            weight, symbol = weights[name], belonging(name, slot.name)
            state = replace(_initial(slot, weight), parameter=name)
            states[slot.name] = _like(graph, symbol, weight, state)
    if not batch.packed:
        return UpdateUnit(batch, weights[first], gradients[first], states)
    weight, gradient = (
        graph.pack(batch.pack(called), weights[first]) for called in (str, gradient_name)
    )
    flat = {
        slot.name: graph.pack(batch.pack(partial(belonging, what=slot.name)), weights[first])
        for slot in kept
    }
    return UpdateUnit(batch, weight, {"": gradient}, flat)


def clear_gradients(graph: StepGraph, units: Sequence[UpdateUnit]) -> None:
    """Fill the accumulated gradients with zeros: not g * 0, which keeps what is not a number."""
    graph.editor.scope = "zerograd/"
    for value in (part for unit in units for part in unit.parts.values()):
        symbol = graph.symbol(value)
        zeros = graph.editor.zeros(value)
        graph.output(zeros, f"{symbol}__zero", SectionType.ZEROGRAD, over=symbol)


def _like(graph: StepGraph, name: str, like: ir.Value, state: State) -> ir.Value:
    assert like.dtype is not None
    return graph.state(name, like.dtype, shape_of(like), state)


def _initial(slot: Slot, like: ir.Value) -> State:
    """Return the state of a slot; zeros need no content."""
    if not slot.initial:
        return State(SymbolKind.OPT_STATE)
    assert like.dtype is not None
    content = np.full(shape_of(like), slot.initial, like.dtype.numpy())
    return State(SymbolKind.OPT_STATE, ir.Tensor(content))


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

    def pack(self, called: Callable[[str], str]) -> Pack:
        """Return the layout of what its members have, each `called` so after its name."""
        members = tuple(zip(map(called, self.parameters), self.offsets, strict=True))
        return Pack(called(self.name), self.size, members)


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
        together = [name for name in group.parameters if packable and name not in alone]
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
