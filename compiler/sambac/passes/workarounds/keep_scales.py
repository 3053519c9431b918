"""Factors around matrix products that must not become one.

    MatMul(A * a, B * b) * c  ->  Concat(MatMul(Concat(A * a), Concat(B * b))) * c

where factors of which a, b and c may be several, or divisors, are far from 1 together, or one of
them is no number by itself (0, or infinite). onnxruntime multiplies them with each other, and what
comes out with the product of the matrices as they are: 1e25 and 1e25 gave infinities of what is
small, and one 1e25 gave 0 of two matrices whose product is too small without it. Through a Concat
of one operand it does not look.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, made_by, scalar

_FAR = 1e12
"""Within this, products of what models compute are float32 numbers with factors as without."""


def keep_scale(editor: Editor, node: ir.Node) -> str | None:
    """Keep factors around a product apart that are far from 1 together."""
    before = [list(_factors_of(value)) for value in node.inputs]
    result = node.outputs[0]
    behind = list(_factors_behind(result))
    if result.dtype != ir.DataType.FLOAT or _fit([*before[0], *before[1], *behind]):
        return "the product of all factors is near 1"
    for at, factors in enumerate(before):
        value = node.inputs[at]
        if factors and value is not None:
            node.replace_input_with(at, editor.op("Concat", value, like=value, axis=0))
    if behind and result.shape:
        product = editor.op("MatMul", *node.inputs, like=result)
        editor.replace(node, "Concat", product, axis=0)
    return None


def _fit(factors: list[float]) -> bool:
    """Tell whether factors can be multiplied in any order."""
    sizes = [abs(factor) for factor in factors]
    large = np.prod([size for size in sizes if size >= 1], dtype=np.float64)
    small = np.prod([size for size in sizes if size < 1], dtype=np.float64)
    return all(map(isfinite, sizes)) and bool(small >= 1 / _FAR) and bool(large <= _FAR)


def _factors_of(value: ir.Value | None) -> Iterator[float]:
    """Yield what the numbers that `value` is made of are multiplied with, one after the other."""
    while (node := made_by(value, "Div", "Mul", "Transpose")) is not None:
        value = node.inputs[0]
        if node.op_type == "Transpose":
            continue
        found = _factor(node)
        if found is None:
            return
        value, factor = found
        yield factor


def _factors_behind(value: ir.Value) -> Iterator[float]:
    """Yield what `value` is multiplied with, one after the other, where nothing else reads it."""
    while has_one_reader(value):
        (reader,) = value.consumers()
        found = _factor(reader) if reader.op_type in ("Div", "Mul") else None
        if found is None or found[0] is not value:
            return
        yield found[1]
        value = reader.outputs[0]


def _factor(node: ir.Node) -> tuple[ir.Value | None, float] | None:
    """Return what a Mul or Div scales by a number, and the factor."""
    first, second = node.inputs
    if node.op_type == "Div":
        divisor = scalar(second)
        return None if divisor is None else (first, inf if divisor == 0 else 1 / divisor)
    for value, other in ((first, second), (second, first)):
        factor = scalar(other)
        if factor is not None:
            return value, factor
    return None


@dataclass(frozen=True)
class KeepScales(RulePass):
    """Keep onnxruntime from joining factors whose product is far from 1."""

    name: ClassVar[str] = "keep_scales"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Div", "Mul"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"MatMul": (keep_scale,)}
