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

from sambac.graph.node_facts import input_at, static_shape

from .rewriting import Editor, Rule, RulePass, redirect


def lower_cross_entropy(editor: Editor, node: ir.Node) -> str | None:
    """SoftmaxCrossEntropyLoss of scores [N, C] -> LogSoftmax, GatherElements and sums."""
    scores, labels = node.inputs[0], node.inputs[1]
    shape = static_shape(scores)
    if scores is None or labels is None or shape is None or len(shape) != 2:
        return "the scores are not known to be two-dimensional"
    form = _LossForm(editor, node)
    logs = form.make("LogSoftmax", [scores], scores, axis=1)
    safe, valid = form.safe_labels(labels)
    picked = form.without_ignored(form.pick(logs, safe), valid)
    weight = form.weight(safe, valid, picked)
    result = form.reduce(picked, weight)
    replaced = [result, logs][: len(node.outputs)]
    for old, new in zip(node.outputs, replaced, strict=True):
        if old.name and (reason := redirect(old, new)):
            return reason
    node.graph.remove(node, safe=True)  # type: ignore[union-attr]  # it is in the walked graph
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

    def make(
        self, op_type: str, inputs: list[ir.Value | None], like: ir.Value, **attributes: int
    ) -> ir.Value:
        """Insert an operator whose result is like `like`."""
        return self._editor.insert(self._node, op_type, inputs, like, attributes)

    def _constant(self, content: object, dtype: ir.DataType | None, name: str) -> ir.Value:
        assert dtype is not None
        return self._editor.constant(np.asarray(content, dtype.numpy()), name, at=self._node)

    def safe_labels(self, labels: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """Return labels [N] that are all classes, and which were not ignored (None: all)."""
        if self._ignored is None:
            return labels, None
        ignored = self._constant(self._ignored, labels.dtype, "ignored")
        equal = ir.val("", ir.DataType.BOOL, labels.shape)
        skipped = self.make("Equal", [labels, ignored], equal)
        zero = self._constant(0, labels.dtype, "first_class")
        safe = self.make("Where", [skipped, zero, labels], labels)
        return safe, self.make("Not", [skipped], equal)

    def pick(self, logs: ir.Value, labels: ir.Value) -> ir.Value:
        """Return logs[n, labels[n]] as [N]."""
        count = static_shape(logs)
        assert count is not None
        axis = self._editor.constant(np.array([1], np.int64), "classes", at=self._node)
        column = self.make("Unsqueeze", [labels, axis], ir.val("", labels.dtype, (count[0], 1)))
        picked = self.make(
            "GatherElements", [logs, column], ir.val("", logs.dtype, (count[0], 1)), axis=1
        )
        return self.make("Squeeze", [picked, axis], ir.val("", logs.dtype, (count[0],)))

    def without_ignored(self, picked: ir.Value, valid: ir.Value | None) -> ir.Value:
        """Return 0 where a label is ignored: 0 times the -inf of a masked class is no number."""
        if valid is None:
            return picked
        zero = self._constant(0, picked.dtype, "no_loss")
        return self.make("Where", [valid, picked, zero], picked)

    def weight(self, safe: ir.Value, valid: ir.Value | None, like: ir.Value) -> ir.Value | None:
        """Return the weight of each label, [N]; None where all are 1."""
        classes = input_at(self._node, 2)
        kept = None
        if valid is not None:
            assert like.dtype is not None
            kept = self.make("Cast", [valid], like, to=int(like.dtype))
        if classes is None:
            return kept
        own = self.make("Gather", [classes, safe], like, axis=0)
        return own if kept is None else self.make("Mul", [own, kept], like)

    def reduce(self, picked: ir.Value, weight: ir.Value | None) -> ir.Value:
        """Return the reduced loss."""
        terms = picked if weight is None else self.make("Mul", [picked, weight], picked)
        if self._reduction == "none":
            return self.make("Neg", [terms], terms)
        scalar = ir.val("", picked.dtype, ())
        if self._reduction == "mean" and weight is None:
            total = self.make("ReduceMean", [terms], scalar, keepdims=0)
        else:
            total = self.make("ReduceSum", [terms], scalar, keepdims=0)
        if self._reduction == "mean" and weight is not None:
            counted = self.make("ReduceSum", [weight], scalar, keepdims=0)
            total = self.make("Div", [total, counted], scalar)
        return self.make("Neg", [total], scalar)


@dataclass(frozen=True)
class LowerCrossEntropy(RulePass):
    """Lower cross entropies of two-dimensional scores."""

    name: ClassVar[str] = "lower_cross_entropy"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "SoftmaxCrossEntropyLoss": (lower_cross_entropy,)
    }
