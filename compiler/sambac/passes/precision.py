"""Which passes give a program the precision that was asked for."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from pef.program import SectionType
from sambac.errors import CompileError
from sambac.facts import StepFacts

from .base import Pass
from .round_to_bfloat16 import RoundToBfloat16

_SINCE = 13
"""The first opset that knows bfloat16."""


def require_bfloat16(model: ir.Model, name: str, precision: str) -> None:
    """Raise `CompileError` if `precision` needs bfloat16 and the opset of `model` has none."""
    opset = model.opset_imports.get("", _SINCE)
    if precision != "float32" and opset < _SINCE:
        raise CompileError(
            f"{name} is of opset {opset}, which has no bfloat16, and the precision is to be "
            f"{precision}; export the model with opset {_SINCE} or later, or compile it in float32"
        )


def rounding(precision: str, apart: Iterable[str] = ()) -> tuple[Pass, ...]:
    """Return the passes for `precision`, which is none for float32.

    `apart` are outputs of the graph that are computed in float32 whatever the precision.
    """
    if precision == "float32":
        return ()
    return (RoundToBfloat16(everything=precision == "bfloat16", apart=frozenset(apart)),)


def kept_exact(facts: StepFacts) -> list[str]:
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
