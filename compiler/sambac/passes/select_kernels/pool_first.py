"""Pooling before another operator instead of after it, which then has less to do.

Averaging and a pointwise convolution (`PoolBeforeConv`) are both linear, one over pixels and one
over channels, so with a 1x1 convolution of stride 1,

    AveragePool(Conv(x, W, B))         ->  Conv(AveragePool(x), W, B)
    GlobalAveragePool(Conv(x, W, B))   ->  Conv(GlobalAveragePool(x), W, B)

if neither pads, the pool makes the image smaller, and nothing else reads the convolution's
result. The convolution then computes only the pixels that are left: a quarter of them in
DenseNet's transitions.

Taking maxima and rectifying (`PoolBeforeRelu`): rectifying keeps the order of numbers, so that

    MaxPool(Relu(x))  ->  Relu(MaxPool(x))

where nothing else reads what is rectified. Only the maxima are then rectified: a quarter of the
elements for windows of two by two, and in training a quarter of the gradient. The gradient is the
same: of a window whose elements are all negative none gets any either way, and in all others the
maxima are the same elements. Inference has no use for this: there, Relu is part of the convolution
before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import int_attribute, static_shape
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, made_by


def pool_first(editor: Editor, node: ir.Node) -> str | None:
    """Pool(Conv(x)) -> Conv(Pool(x))."""
    between = node.inputs[0]
    conv = made_by(between, "Conv")
    if conv is None or between is None or not has_one_reader(between):
        return "the input is no convolution of which this is the only reader"
    x, weight = conv.inputs[0], static_shape(conv.inputs[1])
    if x is None or x.shape is None or node.outputs[0].shape is None or weight is None:
        return "the shapes are not known"
    if any(size != 1 for size in weight[2:]) or _product(conv, "strides") != 1 or _pads(conv):
        return "the convolution is not pointwise"
    if node.op_type == "AveragePool" and (_pads(node) or _product(node, "strides") < 2):
        return "the pool pads, or the image stays large"
    if int_attribute(node, "ceil_mode", 0):
        return "the last windows may be partial"
    pooled_shape = ir.Shape([*x.shape[:2], *node.outputs[0].shape[2:]])
    like = ir.Value(name="", type=x.type, shape=pooled_shape)
    pooled = editor.op(node.op_type, x, like=like, name=f"{between.name}_pooled")
    pool = pooled.producer()
    if pool is not None:
        pool.attributes.update(node.attributes)
    new = editor.replace(node, "Conv", pooled, *conv.inputs[1:])
    new.attributes.update(conv.attributes)
    editor.remove(conv)
    return None


def _pads(node: ir.Node) -> bool:
    """Tell whether the node pads or may pad."""
    automatic = node.attributes.get("auto_pad")
    if automatic is not None and automatic.as_string() not in ("NOTSET", "VALID"):
        return True
    pads = node.attributes.get("pads")
    return pads is not None and any(pads.as_ints())


def _product(node: ir.Node, name: str) -> int:
    attribute = node.attributes.get(name)
    return 1 if attribute is None else math.prod(attribute.as_ints())


@dataclass(frozen=True)
class PoolBeforeConv(RulePass):
    """Move average pools from behind pointwise convolutions to before them."""

    name: ClassVar[str] = "pool_before_conv"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(
        ("AveragePool", "GlobalAveragePool"), (pool_first,)
    )


def pool_before_relu(editor: Editor, node: ir.Node) -> str | None:
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
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"MaxPool": (pool_before_relu,)}
