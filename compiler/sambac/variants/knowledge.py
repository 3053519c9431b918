"""What is known of values while some scalars are zero and others are not.

Knowledge of a value is a number that all its elements are, a truth value, or `NONZERO`. Two tables
say what follows from it: `result` what an operator makes, `passes_on` which input it passes on
unchanged. That 0 * x is 0 and x + 0 * y is x is meant by a term that is left out, whatever y holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx_ir as ir


class NonZero:
    """A number that is not zero, and of which nothing else is known."""


NONZERO = NonZero()
Known = float | bool | NonZero | None
"""What is known of a value; None is nothing."""

_NUMERIC: Mapping[str, Callable[[float, float], float]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Greater": operator.gt,
    "Equal": operator.eq,
}
_SAME = frozenset({"Reshape", "Identity"})


def result(op_type: str, inputs: Sequence[Known]) -> Known:
    """Return what is known of what an operator makes of `inputs`."""
    first = inputs[0] if inputs else None
    if op_type in _SAME:
        return first
    if op_type == "Mul" and any(_is(known, 0) for known in inputs):
        return 0.0
    if op_type == "Equal" and NONZERO in inputs and any(_is(known, 0) for known in inputs):
        return False
    if first is None or isinstance(first, NonZero):
        return None
    if op_type == "Cast":
        return float(first)
    if op_type == "Neg":
        return -first
    if op_type == "Not":
        return not first
    second = inputs[1] if len(inputs) > 1 else None
    if op_type in _NUMERIC and second is not None and not isinstance(second, NonZero):
        return _NUMERIC[op_type](first, second)
    return None


def passes_on(op_type: str, inputs: Sequence[Known]) -> int | None:
    """Return the input whose elements are those of the output, None if there is none."""
    if op_type == "GatedAdd" and _is(inputs[2], 0):
        return 0
    if op_type == "Where" and isinstance(inputs[0], bool):
        return 1 if inputs[0] else 2
    if op_type in ("Add", "Sub") and _is(inputs[1], 0):
        return 0
    if op_type == "Add" and _is(inputs[0], 0):
        return 1
    if op_type in ("Mul", "Div") and _is(inputs[1], 1):
        return 0
    if op_type == "Mul" and _is(inputs[0], 1):
        return 1
    return None


def _is(known: Known, number: float) -> bool:
    return isinstance(known, float) and known == number


def spread(model: ir.Model, given: Mapping[str, Known]) -> dict[str, Known]:
    """Return what is known of values of `model` when inputs of it are as `given`."""
    inputs = [value for value in model.graph.inputs if value.name in given]
    known: dict[ir.Value, Known] = {value: given[str(value.name)] for value in inputs}
    behind = {use.node for value in inputs for use in value.uses()}
    for node in _ordered(model.graph, behind):
        found = result(node.op_type, [_of(value, known) for value in node.inputs])
        if found is not None:
            known[node.outputs[0]] = found
    return {str(value.name): found for value, found in known.items()}


def _ordered(graph: ir.Graph, behind: set[ir.Node]) -> Iterable[ir.Node]:
    """Yield the nodes that may know something, in their order; `behind` grows on the way."""
    for node in graph:
        if node in behind:
            yield node
            behind.update(use.node for value in node.outputs for use in value.uses())


def _of(value: ir.Value | None, known: Mapping[ir.Value, Known]) -> Known:
    if value is None:
        return None
    found = known.get(value)
    if found is None and value.const_value is not None and value.const_value.size == 1:
        return as_known(value.const_value.numpy().item())
    return found


def as_known(number: object) -> Known:
    """Return what a constant with this one element tells."""
    return (
        number
        if isinstance(number, bool)
        else float(number)
        if isinstance(number, (int, float))
        else None
    )
