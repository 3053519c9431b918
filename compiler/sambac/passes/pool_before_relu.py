"""Taking maxima before rectifying instead of after it.

Rectifying keeps the order of numbers, so that

    MaxPool(Relu(x))  ->  Relu(MaxPool(x))

where nothing else reads what is rectified. Only the maxima are then rectified: a quarter of the
elements for windows of two by two, and in training a quarter of the gradient. The gradient is the
same: of a window whose elements are all negative none gets any either way, and in all others the
maxima are the same elements. Inference has no use for this: there, Relu is part of the convolution
before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor

from .rewriting import Rule, RulePass, has_one_reader, made_by


def pool_first(editor: Editor, node: ir.Node) -> str | None:
    """MaxPool(Relu(x)) -> Relu(MaxPool(x))."""
    rectified = node.inputs[0]
    relu = made_by(rectified, "Relu")
    if relu is None or rectified is None or not has_one_reader(rectified):
        return "the input is no Relu of which this is the only reader"
    if len(node.outputs) > 1:
        return "the pool gives indices too"
    pooled = editor.op(
        "MaxPool", *relu.inputs, like=node.outputs[0], name=f"{rectified.name}_pooled"
    )
    pool = pooled.producer()
    if pool is not None:
        pool.attributes.update(node.attributes)
    editor.replace(node, "Relu", pooled)
    editor.remove(relu)
    return None


@dataclass(frozen=True)
class PoolBeforeRelu(RulePass):
    """Move the rectifying of images behind their max pooling."""

    name: ClassVar[str] = "pool_before_relu"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"MaxPool": (pool_first,)}
