"""Biases: rows that are added to a product of matrices, whatever kernels the host has for both."""

from __future__ import annotations

from math import prod

from pef.symbols import Shape

from .view import DataflowView, OpFacts

_PRODUCTS = frozenset({("MatMul", ""), ("FusedMatMul", "com.microsoft")})
_OF_CODES = ("MatMulNBits", "com.microsoft")
"""A product whose second operand is one matrix always, in blocks of codes."""


def product_added_to(view: DataflowView, name: str) -> str | None:
    """Return the product that the operator `name` adds a row from memory to; None if there is none.

    Such a product has one matrix as its second operand, and nobody else reads it. Its sizes are
    known.
    """
    op = view.ops[name]
    if (op.op_type, op.domain) != ("Add", ""):
        return None
    makers = (view.ops[maker] for maker in view.placed.pred[name])
    products = (maker for maker in makers if _kind(maker) in {*_PRODUCTS, _OF_CODES})
    return next((each.name for each in products if _takes(view, each, op)), None)


def _takes(view: DataflowView, product: OpFacts, addition: OpFacts) -> bool:
    """Tell whether a Gemm could do what `product` and `addition` do one after the other."""
    made, result = product.outputs[0], view.values[addition.outputs[0]].shape
    others = [value for value in addition.inputs if view.behind(value) != (made,)]
    return (
        len(view.placed.succ[product.name]) == 1
        and made not in view.outputs
        and (_kind(product) == _OF_CODES or len(view.values[product.inputs[-1]].shape or ()) == 2)
        and _elements(view.values[made].shape) == _elements(result)
        and all(_is_row_of(view.values[value].shape, result) for value in others)
        and all(_is_given(view, base) for value in others for base in view.behind(value))
    )


def _kind(op: OpFacts) -> tuple[str, str]:
    return op.op_type, op.domain


def _is_given(view: DataflowView, value: str) -> bool:
    """Tell whether no operator computes what memory has, but for a cast that rounds it."""
    maker = view.producer.get(value)
    return maker is None or maker in view.loads


def _is_row_of(shape: Shape, result: Shape) -> bool:
    """Tell whether what has `shape` is one row of the result."""
    if not shape or not result or shape[-1] != result[-1]:
        return False
    return _elements(shape) == shape[-1]


def _elements(shape: Shape) -> int | None:
    """Return how many elements there are, None if that is not known."""
    if shape is None:
        return None
    sizes = [size for size in shape if isinstance(size, int)]
    return prod(sizes) if len(sizes) == len(shape) else None
