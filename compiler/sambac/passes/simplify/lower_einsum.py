"""Sums of products that are matrix products, as these.

    Einsum(x, y)  ->  Transpose(Reshape(MatMul(Reshape(Transpose(x)), Reshape(Transpose(y)))))

for float32 operands of known sizes, of two terms, in which each letter stands once and is summed
in both terms or in none; moves that move nothing are left out. onnxruntime's Einsum moves the same
numbers in each run, those of weights too, and takes 1.2 to 2.3 times as long. A product is what
quantisation, fusion and modelled devices know. Sums may be taken in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.equations import equation_of
from sambac.graph.nodes import static_shape
from sambac.passes.rewriting import Rule, RulePass

_TERMS = 2


@dataclass(frozen=True)
class _Product:
    """The letters of a matrix product by what becomes of them.

    `batch` are those of both terms and of the result, `summed` those of both terms alone, `rows`
    and `columns` those of the first and of the second term that are in the result.
    """

    batch: str
    summed: str
    rows: str
    columns: str


def multiply(editor: Editor, node: ir.Node) -> str | None:
    """Einsum(x, y) -> a MatMul, with moves around it."""
    equation = equation_of(node)
    terms, result = equation.terms, equation.result
    letters = None if result is None else _product(terms, result)
    if result is None or letters is None:
        return "the equation is no matrix product of two terms"
    sizes = _sizes(node, terms)
    if sizes is None:
        return "the operands are no float32 of known sizes, or empty"
    batch = [sizes[c] for c in letters.batch]
    rows, summed, columns = (
        prod(sizes[c] for c in part) for part in (letters.rows, letters.summed, letters.columns)
    )
    x, y = node.inputs
    assert x is not None
    assert y is not None
    left = _moved(editor, x, terms[0], letters.batch + letters.rows + letters.summed)
    right = _moved(editor, y, terms[1], letters.batch + letters.summed + letters.columns)
    left = _shaped(editor, left, [*batch, rows, summed])
    right = _shaped(editor, right, [*batch, summed, columns])
    made = letters.batch + letters.rows + letters.columns
    product = _shaped(editor, editor.op("MatMul", left, right), [sizes[c] for c in made])
    if made == result:
        editor.replace(node, "Identity", product)
    else:
        editor.replace(node, "Transpose", product, perm=[made.index(c) for c in result])
    return None


def _product(terms: Sequence[str], result: str) -> _Product | None:
    """Return the letters of a matrix product, None if it is none."""
    spelled = (*terms, result)
    if len(terms) != _TERMS or any(not term.isalpha() and term for term in spelled):
        return None
    if any(len({*term}) < len(term) for term in spelled) or {*result} - {*"".join(terms)}:
        return None
    left, right = terms
    found = _Product(
        batch="".join(c for c in result if c in left and c in right),
        summed="".join(c for c in left if c in right and c not in result),
        rows="".join(c for c in result if c not in right),
        columns="".join(c for c in result if c not in left),
    )
    alone = {*left} ^ {*right}
    return found if found.summed and alone <= {*result} else None


def _sizes(node: ir.Node, terms: Sequence[str]) -> Mapping[str, int] | None:
    """Return the size of each letter; None where one is not known, is 0, or differs."""
    sizes: dict[str, int] = {}
    for value, term in zip(node.inputs, terms, strict=True):
        shape = static_shape(value)
        if value is None or shape is None or len(shape) != len(term):
            return None
        if value.dtype != ir.DataType.FLOAT or 0 in shape:
            return None
        if any(sizes.setdefault(c, size) != size for c, size in zip(term, shape, strict=True)):
            return None
    return sizes


def _moved(editor: Editor, value: ir.Value, term: str, order: str) -> ir.Value:
    """Put the axes of `value`, which are those of `term`, into this order."""
    if term == order:
        return value
    return editor.op("Transpose", value, perm=[term.index(c) for c in order])


def _shaped(editor: Editor, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """Give `value` these sizes."""
    if static_shape(value) == tuple(sizes):
        return value
    return editor.op("Reshape", value, [*sizes])


@dataclass(frozen=True)
class LowerEinsum(RulePass):
    """Write sums of products as matrix products."""

    name: ClassVar[str] = "lower_einsum"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Einsum": (multiply,)}
