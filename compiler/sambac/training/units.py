"""Trained parameters in the graph of a step, with the memory of their gradients and state.

Parameters that one chain of operators updates (`packs`) are in the graph as one flat vector over
their memory. Where a gradient is scaled into another place than its own (`step` says when), its
parameter is updated alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from pef.graphs import belonging, gradient_name
from pef.program import SectionType
from pef.symbols import SymbolKind
from sambac.facts import State
from sambac.graph.editor import shape_of

from .packs import ParameterSet
from .step_graphs import StepGraph
from .updates import Slot


@dataclass(frozen=True)
class UpdateUnit:
    """A set of parameters in the graph, with their gradient and their state, as it is by now.

    `parts` holds what its gradient is the sum of, by name: of losses that are balanced, or
    one of half precision before it is scaled. Under an empty name stands the gradient
    itself.
    """

    members: ParameterSet
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
    members: ParameterSet,
    weights: Mapping[str, ir.Value],
    gradients: Mapping[str, Mapping[str, ir.Value]],
    kept: Sequence[Slot],
) -> UpdateUnit:
    """Add the state of a set, and the vectors that span it if it is packed."""
    graph.editor.scope = f"opt/{members.group}/"
    first = members.parameters[0]
    states: dict[str, ir.Value] = {}
    for slot in kept:
        for name in members.parameters:
            weight, symbol = weights[name], belonging(name, slot.name)
            state = replace(_initial(slot, weight), parameter=name)
            states[slot.name] = _like(graph, symbol, weight, state)
    if not members.packed:
        return UpdateUnit(members, weights[first], gradients[first], states)
    weight, gradient = (
        graph.pack(members.pack(called), weights[first]) for called in (str, gradient_name)
    )
    flat = {
        slot.name: graph.pack(members.pack(partial(belonging, what=slot.name)), weights[first])
        for slot in kept
    }
    return UpdateUnit(members, weight, {"": gradient}, flat)


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
