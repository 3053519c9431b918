"""Normalisations of groups of channels that keep what their backward pass reads.

Their kernel gives out the result alone. Before differentiation they get further outputs, the
normal numbers before scale and bias, `[rows, size]` with a row for each group of each image, and
the factors `[rows, 1]` that made them,

    InstanceNormalization(x, scale, bias)  ->  y, z, r = GroupNormalization(x, scale, bias; C)
    Reshape(GroupNormalization(Reshape(x), 1, 0)) * scale + bias
                                           ->  y, z, r = GroupNormalization(x, scale, bias; G)
    BatchNormalization(Reshape(GroupNormalization(Reshape(x), 1, 0)), scale, bias, 0, 1)
                                           ->  the same

which the gradient rule reads instead of taking statistics anew. The second form is what PyTorch's
exporter writes, the third what `lower_normalization.py` does. The outputs exist between the two
passes alone: after differentiation, where they are read,

    z, _, v = BatchNormalization(Reshape(x, [1, rows, size]), 1, 0, ..; training_mode = 1)
    r = (v + epsilon)^(-1/2);   y = BatchNormalization(Reshape(z, shape of x), scale, bias, 0, 1)

as that kernel gives its statistics out. Others are lowered as in inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import float_attribute, int_attribute, redirect, static_shape
from sambac.ops.gradients.rules import cut, operand
from sambac.ops.gradients.statistics import affine, reciprocal_root
from sambac.passes.legalize.lower_normalization import lower_group_normalization
from sambac.passes.rewriting import Rule, RulePass, constant, has_one_reader, made_by, used

_EPSILON = 1e-5
_OUTPUTS = 3


def keep_of_instances(editor: Editor, node: ir.Node) -> str | None:
    """InstanceNormalization -> GroupNormalization of single channels, with its statistics."""
    x, scale, bias = node.inputs
    shape = static_shape(x)
    if x is None or x.dtype != ir.DataType.FLOAT or shape is None or prod(shape[2:]) < 2:
        return "its numbers are not of 32 bits, or its sizes unknown or too small"
    if 0 in shape:
        return "it has no elements"
    epsilon = float_attribute(node, "epsilon", _EPSILON)
    made = editor.replace(
        node, "GroupNormalization", x, scale, bias, num_groups=shape[1], epsilon=epsilon
    )
    _add_outputs(editor, made)
    return None


def keep_of_sum(editor: Editor, node: ir.Node) -> str | None:
    """Reshape(GroupNormalization(Reshape(x), 1, 0)) * scale + bias -> GroupNormalization."""
    for product, bias in (node.inputs, reversed(node.inputs)):
        scaling = made_by(product, "Mul")
        if scaling is None or product is None or not has_one_reader(product):
            continue
        for normal, scale in (scaling.inputs, reversed(scaling.inputs)):
            if reason := _join(editor, node, normal, scale, bias):
                continue
            return reason
    return "no operand is a scaled normalisation of groups"


def keep_of_map(editor: Editor, node: ir.Node) -> str | None:
    """BatchNormalization of a GroupNormalization by 0 and 1 -> GroupNormalization."""
    if len(node.inputs) < 5 or int_attribute(node, "training_mode"):
        return "it takes statistics itself"
    mean, variance = (constant(value) for value in node.inputs[3:5])
    epsilon = float_attribute(node, "epsilon", _EPSILON)
    if mean is None or variance is None or mean.any() or (variance + epsilon != 1).any():
        return "it is no plain map"
    return _join(editor, node, *node.inputs[:3])


def _join(
    editor: Editor,
    node: ir.Node,
    normal: ir.Value | None,
    scale: ir.Value | None,
    bias: ir.Value | None,
) -> str | None:
    """Put one GroupNormalization for `node`, which scales and shifts `normal` by channel."""
    found = _groups_behind(normal)
    if found is None or scale is None or bias is None:
        return "what is scaled is no normalisation of groups that nothing else reads"
    shape = shape_of(operand(found.before, 0))
    spread = node.op_type != "BatchNormalization"
    if spread and not all(_goes_by_channel(value, shape) for value in (scale, bias)):
        return "scale or bias do not go by channel"
    flat = [
        editor.op("Reshape", value, [shape[1]]) if static_shape(value) != shape[1:2] else value
        for value in (scale, bias)
    ]
    epsilon = float_attribute(found.inner, "epsilon", _EPSILON)
    groups = int_attribute(found.inner, "num_groups")
    made = editor.replace(
        node,
        "GroupNormalization",
        operand(found.before, 0),
        *flat,
        num_groups=groups,
        epsilon=epsilon,
    )
    _add_outputs(editor, made)
    return None


@dataclass(frozen=True)
class _NormalGroups:
    """A normalisation of groups as channels, `inner`, of what the Reshape `before` makes."""

    before: ir.Node
    inner: ir.Node


def _groups_behind(normal: ir.Value | None) -> _NormalGroups | None:
    """Return the normalisation of which `normal` is the result in the shape of the image."""
    behind = made_by(normal, "Reshape")
    inner = None if behind is None else made_by(behind.inputs[0], "GroupNormalization")
    before = None if inner is None else made_by(inner.inputs[0], "Reshape")
    if normal is None or behind is None or inner is None or before is None:
        return None
    alone = has_one_reader(normal) and has_one_reader(inner.outputs[0])
    factors, shifts = constant(inner.inputs[1]), constant(inner.inputs[2])
    plain = factors is not None and shifts is not None and (factors == 1).all()
    shape, rows = static_shape(before.inputs[0]), static_shape(inner.inputs[0])
    if not alone or not plain or shifts is None or shifts.any() or shape is None or rows is None:
        return None
    grouped = len(shape) > 1 and rows[0] == shape[0] and shape[1] % rows[1] == 0
    whole = int_attribute(inner, "num_groups") == rows[1]
    return (
        _NormalGroups(before, inner)
        if grouped and whole and static_shape(normal) == shape
        else None
    )


def _goes_by_channel(value: ir.Value, shape: tuple[int, ...]) -> bool:
    """Tell whether `value` is broadcast to an image of `shape` as a number for each channel."""
    own, after = static_shape(value), len(shape) - 2
    if own is None or prod(own) != shape[1] or not after < len(own) <= len(shape):
        return False
    return own[-1 - after] == shape[1]


def _add_outputs(editor: Editor, node: ir.Node) -> None:
    """Let a GroupNormalization give out the normal numbers and their factors."""
    shape, groups = shape_of(operand(node, 0)), int_attribute(node, "num_groups")
    rows = shape[0] * groups
    stem = node.outputs[0].name
    node.resize_outputs(_OUTPUTS)
    sizes = {"normal": (rows, prod(shape) // rows), "factors": (rows, 1)}
    for value, (name, size) in zip(node.outputs[1:], sizes.items(), strict=True):
        value.name = editor.names.value(f"{stem}_{name}")
        value.type, value.shape = node.outputs[0].type, ir.Shape(size)


def lower_kept_statistics(editor: Editor, node: ir.Node) -> str | None:
    """GroupNormalization that gives out statistics -> the kernel that does, and a map."""
    if len(node.outputs) < _OUTPUTS:
        return "it keeps nothing"
    if not used(node.outputs[1:]):
        node.resize_outputs(1)
        return lower_group_normalization(editor, node)
    x, scale, bias = (operand(node, index) for index in range(3))
    rows, size = shape_of(node.outputs[1])
    epsilon = float_attribute(node, "epsilon", _EPSILON)
    ones, zeros = np.ones(rows, np.float32), np.zeros(rows, np.float32)
    flat = editor.op("Reshape", x, [rows, size])
    # What goes in as statistics counts for nothing, but the kernel writes over it, and operators
    # that are given the same numbers, constants among them, would get the same memory.
    own = [
        editor.op("Neg", editor.op("Reshape", cut(editor, flat, {1: (at, at + 1)}), [rows]))
        for at in (0, size - 1)
    ]
    z, _, variance = editor.ops(
        "BatchNormalization",
        editor.op("Reshape", flat, [1, rows, size]),
        ones,
        zeros,
        *own,
        outputs=3,
        training_mode=1,
        momentum=0.0,
        epsilon=epsilon,
    )
    factors = editor.op("Reshape", reciprocal_root(editor, variance, epsilon), [rows, 1])
    y = affine(editor, editor.op("Reshape", z, shape_of(x)), scale, bias)
    results = (y, editor.op("Reshape", z, [rows, size]), factors)
    for old, new in zip(node.outputs, results, strict=True):
        if reason := redirect(old, new):
            return reason
    editor.remove(node)
    return None


@dataclass(frozen=True)
class KeepStatistics(RulePass):
    """Let normalisations of groups give out what their gradient rule would compute anew."""

    name: ClassVar[str] = "keep_statistics"
    operators: ClassVar[frozenset[str] | None] = frozenset({"InstanceNormalization"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "InstanceNormalization": (keep_of_instances,),
        "Add": (keep_of_sum,),
        "BatchNormalization": (keep_of_map,),
    }


@dataclass(frozen=True)
class LowerKeptStatistics(RulePass):
    """Write normalisations that give out statistics in operators that have kernels."""

    name: ClassVar[str] = "lower_kept_statistics"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "GroupNormalization": (lower_kept_statistics,),
    }
