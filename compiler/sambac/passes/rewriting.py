"""What the rewriting passes share: rules, and what a constant holds.

A rule is a function from an editor and a node to None when it has rewritten the node, or else to
the reason why it has not. A `RulePass` offers every node to the rules of its operator, in order;
the editor stands before the node, and what it makes is named after the node's output.

A constant is an initializer that no caller can override, or a `ConstantOfShape` of one; the
latter is read as a *splat*, an array with one element in memory, and written back as a
`ConstantOfShape`, so that a fill never becomes megabytes in the file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array, is_uniform
from sambac.graph.editor import Editor
from sambac.graph.origins import origins

from .base import Pass

logger = logging.getLogger(__name__)
_AXES_ARE_INPUTS = 13


Rule: TypeAlias = Callable[[Editor, ir.Node], str | None]


class RulePass(Pass):
    """A pass that offers each operator of one domain to the rules of its type, in graph order."""

    domain: ClassVar[str] = ""
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]]

    def __init_subclass__(cls) -> None:
        """Concern the operators of the rules, where a class does not say what it concerns."""
        if "operators" not in cls.__dict__:
            cls.operators = frozenset(cls.rules)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        editor = self.editor(model)
        modified = False
        for graph in tuple(model.graphs()):
            for node in tuple(graph):
                if node.domain == self.domain and node.graph is not None:
                    modified |= self._offer(editor, node)
        return ir.passes.PassResult(model, modified=modified)

    def editor(self, model: ir.Model) -> Editor:
        """Return what the rules edit `model` with."""
        return Editor(model)

    def _offer(self, editor: Editor, node: ir.Node) -> bool:
        rules = self.rules.get(node.op_type, ())
        if rules:
            editor.rewrite(node)
        for rule in rules:
            reason = rule(editor, node)
            if reason is None:
                logger.debug("%s: rewrote %s", self.name, node.name)
                return True
            logger.debug("%s: kept %s: %s", self.name, node.name, reason)
        return False


def present(values: Iterable[ir.Value | None]) -> tuple[ir.Value, ...]:
    """Return the values that are there."""
    return tuple(value for value in values if value is not None)


def constant(value: ir.Value | None) -> Array | None:
    """Return the content of a constant of numbers (read-only; fills as splats), else None."""
    if value is None:
        return None
    if value.is_initializer():
        tensor = value.const_value
        if tensor is None or value.is_graph_input() or tensor.dtype == ir.DataType.STRING:
            return None
        return tensor.numpy()
    producer = value.producer()
    if producer is None or producer.domain != "" or producer.op_type != "ConstantOfShape":
        return None
    shape = constant(producer.inputs[0])
    if shape is None:
        return None
    fill = producer.attributes.get("value")
    one = np.zeros(1, np.float32) if fill is None else fill.as_tensor().numpy()
    return np.broadcast_to(one.reshape(()), tuple(int(size) for size in shape))


def combine(formula: Callable[..., Array], *arrays: Array) -> Array:
    """Apply an elementwise formula with broadcasting; splats give a splat.

    What overflows or divides by 0 gives infinities and NaN, without a warning.
    """
    with np.errstate(all="ignore"):
        if not all(is_uniform(array) for array in arrays):
            return formula(*arrays)
        one = formula(*(array.reshape(-1)[:1] for array in arrays))
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return np.broadcast_to(one.reshape(()), shape)


def scalar(value: ir.Value | None) -> float | None:
    """Return the number in a constant of one element, else None."""
    array = constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def integers(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the content of an integer constant, else None."""
    array = constant(value)
    if array is None or array.dtype.kind not in "iu":
        return None
    return tuple(int(item) for item in array.reshape(-1))


def made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return the node that computes `value` if it is one of the given ONNX operators."""
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain == "" and node.op_type in op_types else None


def made_beside(value: ir.Value, node: ir.Node) -> bool:
    """Tell whether a node of the graph of `node` makes the value.

    What is made outside of the body of a Scan is made once, not in every step.
    """
    maker = value.producer()
    return maker is not None and maker.graph is node.graph


def has_one_reader(value: ir.Value) -> bool:
    """Tell whether exactly one node input reads the value, and no graph gives it out."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def precedes(first: ir.Node | None, second: ir.Node) -> bool:
    """Tell whether `first` is in the graph of `second`, and before it."""
    if first is None or second.graph is None or first.graph is not second.graph:
        return False
    return next(node for node in second.graph if node in (first, second)) is first


def used(outputs: Iterable[ir.Value]) -> bool:
    """Tell whether anything reads one of the values."""
    return any(value.uses() or value.is_graph_output() for value in outputs)


def derived_name(value: ir.Value, suffix: str) -> str:
    """Return a name for what is derived from `value`: that of the model's own tensor, a suffix."""
    return f"{next(iter(origins(value)), value.name)}_{suffix}"


def axes_for(
    editor: Editor, axes: Sequence[int]
) -> tuple[tuple[Sequence[int], ...], dict[str, Any]]:
    """Return `axes` as a Squeeze or an Unsqueeze has them: as an operand, or as an attribute."""
    return ((axes,), {}) if editor.opset >= _AXES_ARE_INPUTS else ((), {"axes": axes})
