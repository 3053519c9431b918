"""Which passes give a program a precision below float32."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from pef.program import SectionType
from pef.symbols import SymbolKind
from sambac.facts import State, StepFacts
from sambac.number_rules import NumberRule, rules_of
from sambac.options import CompileOptions
from sambac.passes.legalize.inline_functions import InlineFunctions
from sambac.passes.legalize.names_and_order import SortNodes
from sambac.passes.legalize.raise_opset import to_opset
from sambac.passes.runner import PassContext

from .round_numbers import RoundNumbers

_SINCE = 13
"""The first opset that knows bfloat16, and all else that rounding is written with."""


def raise_for_rounding(model: ir.Model, name: str, passes: PassContext) -> None:
    """Bring a model of an older opset, in place, to one that has what rounds.

    Raises `CompileError` for what means something else there, or is not there at all.
    """
    if model.opset_imports.get("", _SINCE) < _SINCE:
        # What changes its opset is looked at operator by operator, in order.
        passes.run(model, (SortNodes(), InlineFunctions()), legal_from=2)
        to_opset(model, name, _SINCE, "numbers are rounded")


def rounding(
    options: CompileOptions,
    states: Mapping[str, State] | None = None,
    facts: StepFacts | None = None,
) -> tuple[RoundNumbers, ...]:
    """Return the passes that round as `options` say, which are none for float32.

    `states` are those of the graph, by its inputs; in a training step `facts` are its facts.
    """
    rules = _rules(options)
    if not rules:
        return ()
    weights = frozenset(
        name for name, state in (states or {}).items() if state.kind is SymbolKind.WEIGHT
    )
    if facts is None:
        return (RoundNumbers(rules, weights),)
    passes = (SectionType.FWD, SectionType.BCKWD)
    return (
        RoundNumbers(
            rules,
            weights,
            apart=frozenset(_kept_exact(facts)),
            backward=_outputs(facts, {SectionType.BCKWD}),
            later=_outputs(facts, {*SectionType} - {*passes}),
        ),
    )


def _rules(options: CompileOptions) -> tuple[NumberRule, ...]:
    """Return all rules of `options`, those of the precision first."""
    return (*rules_of(options.precision), *options.number_rules)


def _outputs(facts: StepFacts, stages: Collection[SectionType]) -> frozenset[str]:
    return frozenset(name for name, stage in facts.stages.items() if stage in stages)


def _kept_exact(facts: StepFacts) -> list[str]:
    """Return the outputs of a training step that are computed in float32 in any precision.

    They are those of the optimizer and what belongs to it, and the new values of states, such as
    running statistics and gradients that add up: small changes must not be lost in them.
    """
    rounded = (SectionType.FWD, SectionType.BCKWD)
    return [
        name
        for name, stage in facts.stages.items()
        if stage not in rounded or facts.updates.get(name) in facts.states
    ]
