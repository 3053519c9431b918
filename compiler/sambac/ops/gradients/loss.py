"""Gradients of softmax and of the losses on class labels.

y is the result of the operator, dy the gradient of y. N are the samples, C the classes (axis 1),
D any further axes: scores are [N, C, D...], labels [N, D...].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from pef.text import shape_text
from sambac.errors import CompileError
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import input_at, int_attribute, same_shape
from sambac.ops.family import GradientRule, InputGradient

from .rules import Point, cast, constant_of, dtype_of, incoming, operand, selected, unary

_CLASSES = 1
_UNLESS = 2
"""Which input of a Where is taken where its condition does not hold."""


def _softmax(b: Editor, at: Point) -> ir.Value:
    """dx = z - y * sum(z) along the axis, z = y * dy."""
    y = _known(at.y)
    weighted = b.op("Mul", y, at.dy)
    return b.op("Sub", weighted, b.op("Mul", y, _sum(b, weighted, _axis(at.node))))


def _known(y: ir.Value) -> ir.Value:
    """Return z = Where(IsNaN(y), 0, y), if there is one.

    Attention is written so where a mask may hide a whole row, whose softmax is no number. Nothing
    comes back through it, and 0 times no number would be none.
    """
    maker = y.producer()
    for node, place in y.uses():
        beside = maker is not None and node.graph is maker.graph  # a branch's own is not seen here
        if beside and node.op_type == "Where" and place == _UNLESS and _is_nothing(node, y):
            return node.outputs[0]
    return y


def _is_nothing(node: ir.Node, y: ir.Value) -> bool:
    """Tell whether the Where `node` takes 0 where `y` is no number."""
    asked = operand(node, 0).producer()
    other = constant_of(operand(node, 1))
    is_nan = asked is not None and asked.op_type == "IsNaN" and asked.inputs[0] is y
    zeros = other is not None and not other.any()
    return is_nan and zeros and same_shape(node.outputs[0], y)


def _log_softmax(b: Editor, at: Point) -> ir.Value:
    """dx = dy - exp(y) * sum(dy) along the axis."""
    return _through_log_softmax(b, at.y, at.dy, _axis(at.node))


def _through_log_softmax(b: Editor, y: ir.Value, dy: ir.Value, axis: int) -> ir.Value:
    return b.op("Sub", dy, b.op("Mul", b.op("Exp", y), _sum(b, dy, axis)))


def _axis(node: ir.Node) -> int:
    return int_attribute(node, "axis", -1)


def _sum(b: Editor, value: ir.Value, axis: int) -> ir.Value:
    return b.op("ReduceSum", value, [axis], keepdims=1)


def _cross_entropy(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dscores = w * (p - 1 at the label), plus what comes through the logarithms l = log(p).

    p = exp(l) are the probabilities; w, one for each label, is 0 for ignored ones (`_weights`).
    Through l: dscores = dl - p * sum(dl).
    """
    dy, dl = (*gradients, None)[:2]

    def scores() -> ir.Value:
        logarithms = b.add_output(node, 1)
        through = [] if dl is None else [_through_log_softmax(b, logarithms, dl, _CLASSES)]
        if dy is not None:
            through.append(_from_labels(b, node, b.op("Exp", logarithms), dy))
        return through[0] if len(through) == 1 else b.op("Add", *through)

    return [scores]


def _from_labels(b: Editor, node: ir.Node, p: ir.Value, dy: ir.Value) -> ir.Value:
    labels = b.op("Unsqueeze", _safe_labels(b, node), [_CLASSES])
    at_labels = b.op("GatherElements", p, labels, axis=_CLASSES)
    moved = b.op("ScatterElements", p, labels, b.op("Sub", at_labels, 1.0), axis=_CLASSES)
    return b.op("Mul", moved, _weights(b, node, dy))


def _likelihood(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx = -w at the label, else 0; w is 0 for ignored labels (`_weights`)."""

    def logarithms() -> ir.Value:
        labels = b.op("Unsqueeze", _safe_labels(b, node), [_CLASSES])
        updates = b.op("Neg", _weights(b, node, incoming(node, gradients)))
        updates = b.op("Expand", updates, shape_of(labels))
        return b.op("ScatterElements", b.zeros(operand(node, 0)), labels, updates, axis=_CLASSES)

    return [logarithms]


def _weights(b: Editor, node: ir.Node, dy: ir.Value) -> ir.Value:
    """Return dloss / d(-log p) of each label, [N, 1, D...], or a scalar that holds for all.

    It is c * dy, where c is the weight of the class, 0 for ignored labels; of the mean it is
    c * dy / sum(c). If all labels are ignored it is 0; if all others have classes of weight 0 it is
    no number, as in PyTorch.
    """
    shares = _shares(b, node)
    reduction = node.attributes.get("reduction")
    if reduction is None or reduction.as_string() == "mean":
        if shares is None:
            count = prod(shape_of(operand(node, 1)))
            return b.op("Mul", dy, 1 / max(count, 1))
        dy = b.op("Div", dy, b.op("ReduceSum", shares, keepdims=0))
    weights = dy if shares is None else b.op("Mul", shares, dy)
    valid = _valid(b, node)
    if valid is not None:
        weights = selected(b, valid, weights)  # 0 of ignored labels, whatever dy is
    return b.op("Unsqueeze", weights, [_CLASSES]) if shape_of(weights) else weights


def _shares(b: Editor, node: ir.Node) -> ir.Value | None:
    """Return the weight of each label, [N, D...], 0 for ignored ones; None if all are 1."""
    of_class, valid = input_at(node, 2), _valid(b, node)
    if of_class is None:
        return None if valid is None else cast(b, valid, operand(node, 0))
    weights = b.op("Gather", of_class, _safe_labels(b, node), axis=0)
    return weights if valid is None else b.op("Mul", weights, cast(b, valid, weights))


def _valid(b: Editor, node: ir.Node) -> ir.Value | None:
    """Return which labels count, or None if all do."""
    ignored = node.attributes.get("ignore_index")
    if ignored is None:
        return None
    return b.op("Not", b.op("Equal", operand(node, 1), ignored.as_int()))


def _safe_labels(b: Editor, node: ir.Node) -> ir.Value:
    """Return the labels, 0 instead of ignored ones, which need not be classes.

    Raises `CompileError` for labels of another shape than that of the scores without the classes:
    onnxruntime has a kernel that does not compare them.
    """
    scores, found = shape_of(operand(node, 0)), shape_of(operand(node, 1))
    expected = (*scores[:_CLASSES], *scores[_CLASSES + 1 :])
    if found != expected:
        raise CompileError(
            f"{node.op_type} '{node.name}' has labels of {shape_text(found)} for scores of "
            f"{shape_text(scores)}; {shape_text(expected)} was expected; correct the model"
        )
    labels, valid = operand(node, 1), _valid(b, node)
    if valid is None:
        return labels
    zero = b.constant(np.asarray(0, dtype_of(labels).numpy()))
    return b.op("Where", valid, labels, zero)


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "LogSoftmax": unary(_log_softmax),
    "NegativeLogLikelihoodLoss": _likelihood,
    "Softmax": unary(_softmax),
    "SoftmaxCrossEntropyLoss": _cross_entropy,
})  # fmt: skip
