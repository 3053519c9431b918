"""One table over all operator families."""

from __future__ import annotations

import onnx_ir as ir

_RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli", "Dropout", "SampleOp", "Sampling",
})  # fmt: skip


def is_random(node: ir.Node) -> bool:
    """Return whether two executions of `node` on equal inputs may differ."""
    return node.op_type in _RANDOM


def flops_of(node: ir.Node) -> int:
    """Return the floating-point operations of one execution; 0 where sizes are unknown."""
    return sum(_count(value.shape) for value in node.outputs if value.shape is not None)


def _count(shape: ir.Shape) -> int:
    count = 1
    for dim in shape:
        count *= dim if isinstance(dim, int) else 0
    return count
