"""What is known of masks that are added to the scores of attention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from sambac.graph.nodes import same_size
from sambac.passes.rewriting import constant

_INTEGRAL = (*(f"{kind}INT{bits}" for kind in ("", "U") for bits in (8, 16, 32, 64)), "BOOL")


def fits(mask: ir.Value, scores: ir.Value) -> bool:
    """Tell whether the kernel takes `mask`, or takes it once its row is repeated."""
    shape, wide = mask.shape, scores.shape
    if mask.dtype != ir.DataType.FLOAT or shape is None or wide is None or len(shape) < 2:
        return False
    pairs = [*zip(reversed(shape), reversed(wide), strict=False)]
    return same_size(*pairs[0]) and all(one == 1 or same_size(one, two) for one, two in pairs)


_LARGEST = float(np.finfo(np.float32).max)
_MOVES = ("Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
_ANYTHING = (-np.inf, np.inf)
_DEEPEST = 10
"""What a mask is made of is looked at no further: one value may be both operands, many times."""


def is_finite(mask: ir.Value) -> bool:
    """Tell whether no number of a mask can be infinite or NaN."""
    return all(abs(end) <= _LARGEST for end in _range(mask))


def _range(value: ir.Value | None, depth: int = 0) -> tuple[float, float]:
    """Return between which numbers a mask lies, if the whole numbers it is made of are 0 and 1."""
    content, node = constant(value), None if value is None else value.producer()
    if content is not None:
        ends = (float(content.min()), float(content.max())) if content.size else (0.0, 0.0)
        return _ANYTHING if np.isnan(ends).any() else ends
    if node is None or node.domain or depth == _DEEPEST:
        return _ANYTHING
    if node.op_type == "Cast":
        kind = None if node.inputs[0] is None else node.inputs[0].dtype
        return (0.0, 1.0) if kind is not None and kind.name in _INTEGRAL else _ANYTHING
    if node.op_type in _MOVES:
        return _range(node.inputs[0], depth + 1)
    if node.op_type == "Where":
        (low, high), (other, more) = (_range(each, depth + 1) for each in node.inputs[1:])
        return min(low, other), max(high, more)
    if node.op_type not in ("Add", "Mul", "Sub"):
        return _ANYTHING
    (low, high), (other, more) = (_range(each, depth + 1) for each in node.inputs)
    if node.op_type != "Mul":
        return (low + other, high + more) if node.op_type == "Add" else (low - more, high - other)
    if np.isinf((low, high, other, more)).any():
        return _ANYTHING
    products = [one * two for one in (low, high) for two in (other, more)]
    return min(products), max(products)
