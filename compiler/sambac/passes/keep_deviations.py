"""What is nearly a normalisation, so that onnxruntime does not take it for one.

With d = x - ReduceMean(x), for anything but d / Sqrt(ReduceMean(Pow(d, 2)) + e),

    ReduceMean(Pow(d, p))  ->  ReduceMean(Concat(Pow(d, p)))

where the root of that and a number divides, or is divided. onnxruntime makes a LayerNormalization
of it, whatever p is, which way the division and the subtraction go, and if means keep their axis or
not. Through a Concat of one operand it does not look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import int_attribute

from .rewriting import Rule, RulePass, made_by, scalar


def keep_deviation(editor: Editor, node: ir.Node) -> str | None:
    """Hide the power behind a division that is no normalisation."""
    for at in (0, 1):
        found = _mean_of_power(node.inputs[at])
        if found is None:
            continue
        mean, power = found
        if at == 1 and _is_normalisation(node, mean, power):
            return "it is a normalisation"
        editor.go_before(mean)
        mean.replace_input_with(
            0, editor.op("Concat", power.outputs[0], like=mean.inputs[0], axis=0)
        )
        return None
    return "it is no division by, or of, a root of a mean of deviations"


def _mean_of_power(root: ir.Value | None) -> tuple[ir.Node, ir.Node] | None:
    """Return the ReduceMean and the Pow of Sqrt(ReduceMean(Pow(x - y, p)) + e); None for others."""
    total = _behind(root, "Sqrt")
    added = _behind(total.inputs[0], "Add") if total is not None else None
    for value in added.inputs if added is not None else ():
        mean = _behind(value, "ReduceMean")
        power = made_by(mean.inputs[0], "Pow") if mean is not None else None
        if mean is not None and power is not None and _behind(power.inputs[0], "Sub") is not None:
            return mean, power
    return None


def _behind(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return what makes `value`, perhaps before a Cast, if it is one of these operators."""
    cast = made_by(value, "Cast")
    return made_by(value if cast is None else cast.inputs[0], *op_types)


def _is_normalisation(node: ir.Node, mean: ir.Node, power: ir.Node) -> bool:
    deviation = _behind(node.inputs[0], "Sub")
    if deviation is None or deviation is not _behind(power.inputs[0], "Sub"):
        return False
    middle = _behind(deviation.inputs[1], "ReduceMean")
    keep = all(each is not None and int_attribute(each, "keepdims", 1) for each in (middle, mean))
    return keep and scalar(power.inputs[1]) == 2


@dataclass(frozen=True)
class KeepDeviations(RulePass):
    """Keep onnxruntime from taking divisions for normalisations that they are not."""

    name: ClassVar[str] = "keep_deviations"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Sqrt"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Div": (keep_deviation,)}
