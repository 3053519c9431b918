"""Which passes give a program a precision below float32."""

from __future__ import annotations

import onnx_ir as ir

from pef.program import SectionType
from sambac.errors import CompileError
from sambac.facts import StepFacts

from .base import Pass
from .round_to_bfloat16 import RoundToBfloat16

_SINCE = 13
"""The first opset that knows bfloat16."""


def require_bfloat16(model: ir.Model, name: str, precision: str) -> None:
    """Raise `CompileError` if the opset of `model` has no bfloat16, which `precision` needs."""
    opset = model.opset_imports.get("", _SINCE)
    if opset < _SINCE:
        raise CompileError(
            f"{name} is of opset {opset}, which has no bfloat16, and the precision is to be "
            f"{precision}; export the model with opset {_SINCE} or later, or compile it in float32"
        )


def rounding(precision: str, facts: StepFacts | None = None) -> tuple[Pass, ...]:
    """Return the passes for a `precision` below float32, in a training step those for its `facts`.

    Without `facts` all of the graph is rounded.
    """
    apart = frozenset(_kept_exact(facts) if facts else ())
    return (RoundToBfloat16(everything=precision == "bfloat16", apart=apart),)


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
