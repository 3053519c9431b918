"""What follows the backward pass in a training step: clearing, clipping and updating.

Appended to the graph that holds the gradients. Every new value is an output of the graph, and
`updates` says which memory it overwrites:

    ZEROGRAD   <gradient>__zero     zeros, over the accumulated gradient      (if accumulating)
    BCKWD      <parameter>__grad    the gradient, or its sum so far: <parameter>__grad__next
    REDUCE     (no values)          gradients are summed where they are       (if data-parallel)
    GRADNORM   grad_norm            the global norm, public                   (if clipping)
               <loss>__weight       what the loss counts, public              (if balancing)
               <gradient>__scaled   over the gradient; the sum of balanced losses is a new
                                    <parameter>__grad beside their <parameter>__grad__<loss>
    OPT        <state>__next        over parameters, optimizer state and step counters
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import onnx_ir as ir

from pef.graphs import belonging, gradient_name
from pef.program import SectionType
from pef.symbols import SymbolKind
from pef.wording import listed
from sambac.errors import CompileError
from sambac.facts import Hyperparameter, Pack, State
from sambac.optimizers import Optimizer

from .gradnorm import rescale
from .packs import parameter_sets
from .selection import ParameterGroup, assign
from .step_graphs import StepGraph
from .terms import HALF, Term
from .units import (
    UpdateUnit,
    add_unit,
    clear_gradients,
    export_gradients,
)
from .updates import Scalars, Tensors, slots, update

_RAW = "raw"
"""Half precision is scaled in float32 and cast, and a cast cannot write over what others read:
the gradient is called so until it is scaled."""


@dataclass(frozen=True)
class StepOptions:
    """What a step does with its gradients.

    `optimizers`: what updates the parameters; without any, gradients are all there is.
    `max_grad_norm`: clip to this global norm, an argin. `accumulate`: gradients add up from run
    to run until ZEROGRAD clears them. `pack`: update small parameters together, as flat vectors.
    `alone`: parameters that are in no pack even so. `reduce`: gradients are reduced over processes
    that train together before they are used.
    """

    optimizers: tuple[Optimizer, ...] = ()
    max_grad_norm: float | None = None
    accumulate: bool = False
    pack: bool = True
    alone: frozenset[str] = frozenset()
    reduce: bool = False


@dataclass(frozen=True)
class StepParts:
    """What `add_step` contributes to `StepFacts`, where the fields are described.

    The flat inputs of `packs` are not in `states`; their members are. `public` are the outputs
    that the user should see. `warnings` are sentences for the user.
    """

    stages: Mapping[str, SectionType]
    updates: Mapping[str, str]
    states: Mapping[str, State]
    argins: tuple[Hyperparameter, ...]
    gradients: Mapping[str, str]
    packs: tuple[Pack, ...] = ()
    public: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    terms: Mapping[str, str] = field(default_factory=dict)


def add_step(model: ir.Model, gradients: Mapping[str, ir.Value], asked: StepOptions) -> StepParts:
    """Append to `model` what is `asked`, and return what has to be known of it.

    `gradients` maps each trained parameter, an input of the graph, to its gradient: a value of the
    same type and shape. Raises `CompileError` for everything that is wrong with that.
    """
    beside = asked.max_grad_norm is not None and not asked.accumulate
    parts = {
        name: {_RAW if beside and value.dtype in HALF else "": value}
        for name, value in gradients.items()
    }
    return _add(model, parts, asked, ())


def add_balanced_step(
    model: ir.Model, by_loss: Mapping[str, Mapping[str, ir.Value]], asked: StepOptions
) -> StepParts:
    """As `add_step`, after scaling the gradients of several losses so that they weigh the same.

    `by_loss` maps each loss to its own gradients, by parameter. They are multiplied by factors
    that make their norms over the parameters that all losses reach equal (see `gradnorm.balance`)
    and added up. Raises `CompileError` also where there are no such parameters.
    """
    gathered: dict[str, dict[str, ir.Value]] = {}
    for loss, gradients in by_loss.items():
        for name, value in gradients.items():
            gathered.setdefault(name, {})[loss] = value
    losses = tuple(by_loss)
    if len(losses) < 2:
        raise CompileError("Balancing needs two losses or more; there is one. Name another.")
    if not any(len(parts) == len(losses) for parts in gathered.values()):
        raise CompileError(
            f"There is nothing to balance: no parameter is reached by all of the losses "
            f"{listed(losses, separator=', ')}."
        )
    return _add(model, gathered, replace(asked, pack=False), losses)


def _add(
    model: ir.Model,
    gradients: Mapping[str, Mapping[str, ir.Value]],
    asked: StepOptions,
    balanced: Sequence[str],
) -> StepParts:
    """Append a step; `gradients` are by parameter and loss, `balanced` the losses to balance."""
    _check_norm(asked.max_grad_norm)
    inputs = {str(value.name): value for value in model.graph.inputs}
    weights = {name: inputs[name] for name in gradients}
    groups = assign(asked.optimizers, weights)
    moved = {name for name, parts in gradients.items() if "" not in parts}
    sets = parameter_sets(groups, weights, pack=asked.pack, alone=asked.alone | moved)

    graph = StepGraph(model)
    exported = {
        name: export_gradients(graph, name, parts, accumulate=asked.accumulate)
        for name, parts in gradients.items()
    }
    kept = {group.name: slots(group.optimizer) for group in groups}
    units = [add_unit(graph, each, weights, exported, kept.get(each.group, ())) for each in sets]
    if asked.accumulate:
        clear_gradients(graph, units)
    gathered = (str(part.name) for unit in units for part in unit.parts.values())
    reduced = tuple(gathered) if asked.reduce else ()
    if units and (balanced or asked.max_grad_norm is not None):
        units = rescale(graph, units, asked.max_grad_norm, balanced)
    for group in groups:
        _optimize(graph, group, [unit for unit in units if unit.members.group == group.name])
    return StepParts(
        stages=graph.stages,
        updates=graph.updates,
        states=graph.states,
        argins=tuple(graph.argins),
        gradients={name: gradient_name(name) for name in gradients},
        packs=tuple(graph.packs),
        public=tuple(graph.public),
        reduced=reduced,
        warnings=_warnings(groups, tuple(gradients)),
        terms=graph.terms,
    )


def _optimize(graph: StepGraph, group: ParameterGroup, units: Sequence[UpdateUnit]) -> None:
    """Append the updates of all `units` by the optimizer of `group`."""
    graph.editor.scope = f"opt/{group.name}/"
    term = graph.term
    numbers = _numbers(graph, group)
    for unit in units:
        old = {name: term(value) for name, value in unit.slots.items()}
        tensors = Tensors(term(unit.weight), term(unit.gradient), old)
        new = update(group.optimizer, numbers, tensors)
        graph.overwrite(new.weight, unit.weight, "next", SectionType.OPT)
        for name, value in unit.slots.items():
            graph.overwrite(new.slots[name], value, "next", SectionType.OPT)


def _numbers(graph: StepGraph, group: ParameterGroup) -> Scalars:
    """Return the scalars of `group`; argins and the step counter appear when first asked for."""

    def argin(name: str) -> Term:
        return graph.argin(group.name, name, getattr(group.optimizer, name))

    def term(name: str) -> Term:
        found = argin(name)
        graph.terms[str(found.value.name)] = name
        return found

    def count(counting: Term | None) -> ir.Value:
        name = belonging(group.name, "step")
        state = State(SymbolKind.OPT_STATE, optimizer=group.name)
        before = graph.state(name, ir.DataType.INT64, (), state)
        after = graph.term(before) + 1
        if counting is not None:
            after = graph.term(before).where(counting.is_zero(), after)
        value = graph.overwrite(after, before, "next", SectionType.OPT)
        return graph.editor.op("Cast", value, to=int(ir.DataType.DOUBLE))

    def step(counting: Term | None = None) -> Term:
        return graph.once(("step", group.name), lambda: count(counting))

    return Scalars(argin, term, step)


def _check_norm(largest: float | None) -> None:
    if largest is not None and not (isfinite(largest) and largest > 0):
        raise CompileError(
            f"max_grad_norm is {largest}; give the largest norm allowed, a number above 0."
        )


def _warnings(groups: Sequence[ParameterGroup], trained: Sequence[str]) -> tuple[str, ...]:
    updated = {name for group in groups for name in group.parameters}
    left = [name for name in trained if name not in updated]
    idle = [group for group in groups if not group.parameters]
    narrower = "others match its parameters more narrowly"
    warnings = [
        f"The optimizer {group.name} updates nothing: "
        f"{'its parameters get no gradient' if group.optimizer.lenient else narrower}."
        for group in idle
    ]
    if groups and left:
        warnings.append(f"No optimizer updates {listed(left, separator=', ')}.")
    return tuple(warnings)
