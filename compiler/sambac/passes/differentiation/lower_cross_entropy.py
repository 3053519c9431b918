"""Cross entropy of two-dimensional scores as a log softmax and a gather.

With l = LogSoftmax(x) over the classes, t the labels, w the weight of each label (1, or that of its
class; 0 where the label is ignored),

    SoftmaxCrossEntropyLoss(x, t, weights)  ->  -w l[t],  -sum(w l[t]),  -sum(w l[t]) / sum(w)

for the reductions none, sum and mean, and l as the second output. The operator's own body reshapes
and transposes to a general form first, and the whole of it runs as single operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, redirect, static_shape
from sambac.passes.rewriting import Rule, RulePass


def lower_cross_entropy(editor: Editor, node: ir.Node) -> str | None:
    """SoftmaxCrossEntropyLoss of scores [N, C] -> LogSoftmax, GatherElements and sums."""
    scores, labels = node.inputs[0], node.inputs[1]
    shape = static_shape(scores)
    if scores is None or labels is None or shape is None or len(shape) != 2:
        return "the scores are not known to be two-dimensional"
    form = _LossForm(editor, node)
    logs = editor.op("LogSoftmax", scores, like=scores, axis=1)
    safe, valid = form.safe_labels(labels)
    picked = form.without_ignored(form.pick(logs, safe), valid)
    weight = form.weight(safe, valid, picked)
    result = form.reduce(picked, weight)
    replaced = [result, logs][: len(node.outputs)]
    for old, new in zip(node.outputs, replaced, strict=True):
        if old.name and (reason := redirect(old, new)):
            return reason
    editor.remove(node)
    return None


class _LossForm:
    """Makes the operators that stand in for one node."""

    def __init__(self, editor: Editor, node: ir.Node) -> None:
        self._editor = editor
        self._node = node
        ignored = node.attributes.get("ignore_index")
        self._ignored = None if ignored is None else ignored.as_int()
        reduction = node.attributes.get("reduction")
        self._reduction = "mean" if reduction is None else reduction.as_string()

    def _constant(self, content: object, dtype: ir.DataType | None, name: str) -> ir.Value:
        assert dtype is not None
        return self._editor.initializer(np.asarray(content, dtype.numpy()), name)

    def safe_labels(self, labels: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """Return labels [N] that are all classes, and which were not ignored (None: all)."""
        if self._ignored is None:
            return labels, None
        ignored = self._constant(self._ignored, labels.dtype, "ignored")
        equal = ir.val("", ir.DataType.BOOL, labels.shape)
        skipped = self._editor.op("Equal", labels, ignored, like=equal)
        zero = self._constant(0, labels.dtype, "first_class")
        safe = self._editor.op("Where", skipped, zero, labels, like=labels)
        return safe, self._editor.op("Not", skipped, like=equal)

    def pick(self, logs: ir.Value, labels: ir.Value) -> ir.Value:
        """Return logs[n, labels[n]] as [N]."""
        count = static_shape(logs)
        assert count is not None
        axis = self._editor.initializer(np.array([1], np.int64), "classes")
        column = self._editor.op(
            "Unsqueeze", labels, axis, like=ir.val("", labels.dtype, (count[0], 1))
        )
        picked = self._editor.op(
            "GatherElements", logs, column, like=ir.val("", logs.dtype, (count[0], 1)), axis=1
        )
        return self._editor.op("Squeeze", picked, axis, like=ir.val("", logs.dtype, (count[0],)))

    def without_ignored(self, picked: ir.Value, valid: ir.Value | None) -> ir.Value:
        """Return 0 where a label is ignored: 0 times the -inf of a masked class is no number."""
        if valid is None:
            return picked
        zero = self._constant(0, picked.dtype, "no_loss")
        return self._editor.op("Where", valid, picked, zero, like=picked)

    def weight(self, safe: ir.Value, valid: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Return the weight of each label, [N]; None where all are 1."""
        classes = input_at(self._node, 2)
        kept = None
        if valid is not None:
            assert like.dtype is not None
            kept = self._editor.op("Cast", valid, like=like, to=int(like.dtype))
        if classes is None:
            return kept
        own = self._editor.op("Gather", classes, safe, like=like, axis=0)
        return own if kept is None else self._editor.op("Mul", own, kept, like=like)

    def reduce(self, picked: ir.Value, weight: ir.Value | None) -> ir.Value:
        """Return the reduced loss."""
        terms = picked if weight is None else self._editor.op("Mul", picked, weight, like=picked)
        if self._reduction == "none":
            return self._editor.op("Neg", terms, like=terms)
        scalar = ir.val("", picked.dtype, ())
        if self._reduction == "mean" and weight is None:
            total = self._editor.op("ReduceMean", terms, like=scalar, keepdims=0)
        else:
            total = self._editor.op("ReduceSum", terms, like=scalar, keepdims=0)
        if self._reduction == "mean" and weight is not None:
            counted = self._editor.op("ReduceSum", weight, like=scalar, keepdims=0)
            total = self._editor.op("Div", total, counted, like=scalar)
        return self._editor.op("Neg", total, like=scalar)


@dataclass(frozen=True)
class LowerCrossEntropy(RulePass):
    """Lower cross entropies of two-dimensional scores."""

    name: ClassVar[str] = "lower_cross_entropy"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "SoftmaxCrossEntropyLoss": (lower_cross_entropy,)
    }
