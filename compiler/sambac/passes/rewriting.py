"""What the rewriting passes share: rules, constants, fresh names, replacement.

A rule is a function from an editor and a node to None when it has rewritten the node, or else to
the reason why it has not. A `RulePass` offers every node to the rules of its operator, in order.

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

from sambac.graph.constants import is_literal
from sambac.graph.module_paths import inherit_module
from sambac.graph.names import FreshNames, node_names, value_names
from sambac.graph.node_facts import static_shape
from sambac.graph.origins import note_origins, origins

from .base import Pass

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[Any]]
Attributes: TypeAlias = Mapping[str, int | float | str | Sequence[int] | ir.TensorProtocol]

FILL_BYTES = 1024
"""A splat of more bytes than this stays a `ConstantOfShape`."""

logger = logging.getLogger(__name__)


class Editor:
    """Edits one model; every name it makes is new to the whole model, subgraphs included."""

    def __init__(self, model: ir.Model) -> None:
        self.opset = model.graph.opset_imports.get("", 0)
        self._model = model
        self._value_names: FreshNames | None = None
        self._node_names: FreshNames | None = None

    def _value_name(self, wish: str) -> str:
        if self._value_names is None:
            self._value_names = value_names(self._model)
        return self._value_names(wish)

    def _node_name(self, wish: str) -> str:
        if self._node_names is None:
            self._node_names = node_names(self._model)
        return self._node_names(wish)

    def constant(
        self, array: Array, name: str, *, at: ir.Node, origin: Sequence[ir.Value] = ()
    ) -> ir.Value:
        """Make `array` a constant that `at` can read, derived from the values `origin`.

        A large splat becomes a `ConstantOfShape` before `at`, anything else an initializer.
        """
        if is_uniform(array) and array.nbytes > FILL_BYTES:
            return self._fill(array, name, at)
        fresh = self._value_name(name)
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=fresh)
        value = ir.val(fresh, const_value=tensor)
        note_origins(value, origin)
        home = graph_of(at) if is_literal(tensor) else self._model.graph
        home.register_initializer(value)
        return value

    def _fill(self, array: Array, name: str, at: ir.Node) -> ir.Value:
        shape = self.constant(np.asarray(array.shape, np.int64), f"{name}_shape", at=at)
        fill = ir.tensor(np.ascontiguousarray(array.reshape(-1)[:1]))
        like = ir.val("", ir.DataType.from_numpy(array.dtype), array.shape)
        return self.insert(at, "ConstantOfShape", [shape], like, {"value": fill}, name=name)

    def insert(
        self,
        before: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        like: ir.Value,
        attributes: Attributes | None = None,
        *,
        name: str | None = None,
        domain: str = "",
    ) -> ir.Value:
        """Insert a node whose only output has the type and shape of `like`; return the output."""
        stem = name or f"{before.outputs[0].name}_{op_type.lower()}"
        out = ir.Value(name=self._value_name(stem), type=like.type, shape=like.shape)
        node_name = self._node_name(stem)
        given = dict(attributes or {})
        node = ir.node(op_type, inputs, given, domain=domain, outputs=[out], name=node_name)
        inherit_module(node, before)
        graph_of(before).insert_before(before, node)
        return out

    def replace(
        self,
        node: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Attributes | None = None,
    ) -> ir.Node:
        """Put another operator in the place of `node`, with its name, outputs and their names."""
        outputs = [ir.Value(name=out.name, type=out.type, shape=out.shape) for out in node.outputs]
        new = ir.node(op_type, inputs, dict(attributes or {}), outputs=outputs, name=node.name)
        inherit_module(new, node)
        graph = graph_of(node)
        graph.insert_before(node, new)
        for old, out in zip(node.outputs, outputs, strict=True):
            old.replace_all_uses_with(out, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        return new

    def bypass(self, node: ir.Node, value: ir.Value) -> str | None:
        """Let the readers of the node's first output read `value` instead; remove the node.

        A graph output keeps its name. Return the reason when the output cannot be `value`.
        """
        reason = redirect(node.outputs[0], value)
        if reason is None:
            graph_of(node).remove(node, safe=True)
        return reason


Rule: TypeAlias = Callable[[Editor, ir.Node], str | None]


class RulePass(Pass):
    """A pass that offers each ONNX operator to the rules of its type, in graph order."""

    rules: ClassVar[Mapping[str, tuple[Rule, ...]]]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        editor = Editor(model)
        modified = False
        for graph in tuple(model.graphs()):
            for node in tuple(graph):
                if node.domain == "" and node.graph is not None:
                    modified |= self._offer(editor, node)
        return ir.passes.PassResult(model, modified=modified)

    def _offer(self, editor: Editor, node: ir.Node) -> bool:
        for rule in self.rules.get(node.op_type, ()):
            reason = rule(editor, node)
            if reason is None:
                logger.debug("%s: rewrote %s", self.name, node.name)
                return True
            logger.debug("%s: kept %s: %s", self.name, node.name, reason)
        return False


def present(values: Iterable[ir.Value | None]) -> tuple[ir.Value, ...]:
    """Return the values that are there."""
    return tuple(value for value in values if value is not None)


def graph_of(node: ir.Node) -> ir.Graph:
    """Return the graph that `node` is in."""
    if node.graph is None:
        raise ValueError(f"node {node.name} is in no graph")
    return node.graph


def redirect(old: ir.Value, new: ir.Value) -> str | None:
    """Let all readers of `old` read `new`; a graph output keeps its name.

    Return the reason when that is impossible: an output of a graph has to be computed in it, and
    one value cannot be two outputs.
    """
    if old.is_graph_output():
        producer, maker = old.producer(), new.producer()
        if maker is None or producer is None or maker.graph is not producer.graph:
            return "a graph output has to be computed in its graph"
        if new.is_graph_output():
            return "both values are graph outputs"
    _adopt_facts(new, old)
    name = old.name
    renamed = old.is_graph_output()
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if renamed:
        old.name = None
        new.name = name
    return None


def _adopt_facts(value: ir.Value, other: ir.Value) -> None:
    """Take what is known about an equal value: the type, and dimensions that are numbers."""
    if value.type is None:
        value.type = other.type
    if static_shape(value) is None and other.shape is not None and not value.is_graph_input():
        value.shape = other.shape


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


def is_uniform(array: Array) -> bool:
    """Tell whether the array has only one element in memory."""
    return array.size > 0 and all(
        stride == 0 or size == 1 for stride, size in zip(array.strides, array.shape, strict=True)
    )


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


def has_one_reader(value: ir.Value) -> bool:
    """Tell whether exactly one node input reads the value, and no graph gives it out."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def used(outputs: Iterable[ir.Value]) -> bool:
    """Tell whether anything reads one of the values."""
    return any(value.uses() or value.is_graph_output() for value in outputs)


def derived_name(value: ir.Value, suffix: str) -> str:
    """Return a name for what is derived from `value`: that of the model's own tensor, a suffix."""
    return f"{next(iter(origins(value)), value.name)}_{suffix}"
