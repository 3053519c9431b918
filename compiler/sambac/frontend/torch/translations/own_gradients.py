"""Functions with a backward method of their own; see `sambac.graph.own_gradients`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx import defs
from onnxscript.values import Op, Opset

from sambac.graph.own_gradients import DOMAIN, INCOMING, OWN

from .operators import op, stop, typed

_FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)")
_INT = defs.OpSchema.AttrType.INT


def incoming_gradient(y: ir.Value, number: int) -> ir.Value:
    """Return what stands for the gradient of `y`, the result `number` of a function."""
    result: ir.Value = _operator(INCOMING, 1, 1)(stop(y), number=number)
    return typed(result, y)


def own_gradient(
    results: Sequence[ir.Value],
    incoming: Sequence[ir.Value],
    sources: Sequence[ir.Value],
    gradients: Sequence[ir.Value],
) -> tuple[ir.Value, ...]:
    """Return `results`, whose gradients go to `sources` as `gradients` and by no other way."""
    given = (*map(stop, results), *incoming, *sources, *map(stop, gradients))
    made = _operator(OWN, len(given), len(results))(*given)
    outputs = (made,) if isinstance(made, ir.Value) else made
    return tuple(typed(output, like) for output, like in zip(outputs, results, strict=True))


def unread(y: ir.Value, number: int) -> ir.Value:
    """Return something of the shape of `y`, for programs without gradients."""
    return typed(op.Identity(y), y)


def results_alone(results: Sequence[ir.Value], *_: object) -> tuple[ir.Value, ...]:
    """Return `results`, for programs without gradients."""
    return tuple(typed(op.Identity(value), value) for value in results)


def _operator(kind: str, inputs: int, outputs: int) -> Op:
    """Return such an operator with so many operands, each of a type of its own."""
    types = [(f"T{at}", list(_FLOATS), "") for at in range(max(inputs, outputs))]
    formal = defs.OpSchema.FormalParameter
    schema = defs.OpSchema(
        kind,
        DOMAIN,
        1,
        inputs=[formal(f"x{at}", f"T{at}") for at in range(inputs)],
        outputs=[formal(f"y{at}", f"T{at}") for at in range(outputs)],
        type_constraints=types,
        attributes=[defs.OpSchema.Attribute("number", _INT, required=False)],
    )
    return Op(Opset(DOMAIN, 1), kind, schema)
