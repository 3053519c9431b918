"""Editing a graph at a point: operators are named, typed and shaped as they are put there.

Passes, gradient rules and optimizer formulas are written with it:

    b = Editor(model, "grad/")                    # at the end of the main graph
    y = b.op("Mul", x, 0.5)                       # numbers take the type of the first tensor
    s = b.op("ReduceSum", y, [1], keepdims=1)     # lists of integers become int64 tensors
    h, w = b.ops("Split", y, outputs=2, axis=0, num_outputs=2)
    b.go_before(node)                             # what follows is put there, in this order
    z = b.op("Relu", y, like=y)                   # of the type and shape of y: nothing is inferred

Types and shapes that are not given are inferred, and have to be known: training fixes every size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from sambac.errors import CompileError, InternalError

from .constants import Array, is_literal, is_uniform
from .decisions import Decisions
from .names import ModelNames, inner_result
from .nodes import graph_of, redirect, static_shape
from .origins import inherit_module, note_origins
from .value_types import infer_results

Operand: TypeAlias = ir.Value | float | int | bool | Sequence[int] | np.ndarray | None
Attribute: TypeAlias = (
    int | float | str | Sequence[int] | Sequence[float] | ir.TensorProtocol | ir.Graph | None
)

FILL_BYTES = 1024
"""A splat of more bytes than this stays a `ConstantOfShape`."""


class Editor:
    """Edits the graphs of one model at a point; every name it makes is new to the whole model.

    `scope` begins the names of all nodes and values. What is made while there is an `origin` comes
    from the module of that node. `names` are the editor's: whoever names what it puts asks them.
    `decisions` say which formulation is put where there are several, and remember it.
    """

    def __init__(
        self, model: ir.Model, scope: str = "", decisions: Decisions | None = None
    ) -> None:
        self.model = model
        self.decisions = Decisions() if decisions is None else decisions
        self.scope = scope
        self.origin: ir.Node | None = None
        self.names = ModelNames(model)
        self.point = InsertionPoint(model.graph)
        self._rewritten: ir.Node | None = None
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    @property
    def opset(self) -> int:
        """The version of the operators of ONNX itself; 0 where the model has none."""
        return self.model.graph.opset_imports.get("", 0)

    def go_before(self, node: ir.Node) -> None:
        """Put what follows before `node`."""
        self.point = InsertionPoint.before(node)

    def go_behind(self, node: ir.Node) -> None:
        """Put what follows behind `node`."""
        self.point = InsertionPoint.behind(node)

    def go_to_end(self, graph: ir.Graph) -> None:
        """Put what follows at the end of `graph`."""
        self.point = InsertionPoint(graph)

    def rewrite(self, node: ir.Node) -> None:
        """Make what follows for `node`: before it, of its module, named after its first output."""
        self.point = InsertionPoint.before(node)
        self.origin = self._rewritten = node

    def inside(self, graph: ir.Graph) -> Editor:
        """Return an editor at the end of `graph`, one that a node of the model will hold.

        Both share their names and their constants, which lie in the main graph.
        """
        inner = copy(self)
        inner.go_to_end(graph)
        return inner

    def op(
        self,
        op_type: str,
        *inputs: Operand,
        domain: str = "",
        like: ir.Value | None = None,
        name: str | None = None,
        **attributes: Attribute,
    ) -> ir.Value:
        """Put an operator, and return its first output, the only one.

        It has the type and shape of `like`, or those that are inferred; node and output are called
        `name`, or after the operator.
        """
        node_name, (result,) = self._named(op_type, 1, name)
        node = self._node(op_type, inputs, [result], domain, attributes)
        node.name = node_name
        if like is None:
            infer_results(node, self.model.opset_imports)
        else:
            result.type, result.shape = like.type, like.shape
        self._put(node)
        return result

    def ops(
        self,
        op_type: str,
        *inputs: Operand,
        outputs: int,
        domain: str = "",
        **attributes: Attribute,
    ) -> tuple[ir.Value, ...]:
        """Put an operator, and return all of its outputs."""
        node_name, results = self._named(op_type, outputs)
        node = self._node(op_type, inputs, results, domain, attributes)
        node.name = node_name
        infer_results(node, self.model.opset_imports)
        self._put(node)
        return tuple(results)

    def put(self, node: ir.Node) -> None:
        """Put `node`, whose outputs are typed and shaped; it gets a name if it has none."""
        node.name = node.name or self.names.node(f"{self.scope}{node.op_type}")
        self._put(node)

    def replace(
        self,
        node: ir.Node,
        op_type: str,
        *inputs: Operand,
        domain: str = "",
        **attributes: Attribute,
    ) -> ir.Node:
        """Put another operator in the place of `node`, with its name, outputs and their names."""
        outputs = [ir.Value(name=out.name, type=out.type, shape=out.shape) for out in node.outputs]
        new = self._node(op_type, inputs, outputs, domain, attributes)
        new.name = node.name
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
            self.remove(node)
        return reason

    def remove(self, node: ir.Node) -> None:
        """Remove `node`, whose outputs nothing reads."""
        graph_of(node).remove(node, safe=True)

    def fresh(self, stem: str, dtype: ir.DataType | None, shape: Sequence[int]) -> ir.Value:
        """Return a value of a new name that nothing makes yet: an input or output to be."""
        return ir.val(self.names.value(f"{self.scope}{stem}"), dtype, tuple(shape))

    def constant(self, array: np.ndarray, name: str = "constant") -> ir.Value:
        """Return the initializer of the main graph with this content, made when first asked for."""
        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes())
        value = self._constants.get(key)
        if value is None:
            fresh = self.names.value(f"{self.scope}{name}")
            value = ir.val(fresh, const_value=ir.Tensor(array, name=fresh))
            self.model.graph.register_initializer(value)
            self._constants[key] = value
        return value

    def initializer(self, array: Array, name: str, origin: Sequence[ir.Value] = ()) -> ir.Value:
        """Make `array` a constant that this point can read, derived from the values `origin`.

        A large splat becomes a `ConstantOfShape`, anything else an initializer, of the main graph
        where it is a weight.
        """
        if is_uniform(array) and array.nbytes > FILL_BYTES:
            return self._fill(array, name)
        fresh = self.names.value(name)
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=fresh)
        value = ir.val(fresh, const_value=tensor)
        note_origins(value, origin)
        home = self.point.graph if is_literal(tensor) else self.model.graph
        home.register_initializer(value)
        return value

    def _fill(self, array: Array, name: str) -> ir.Value:
        shape = self.initializer(np.asarray(array.shape, np.int64), f"{name}_shape")
        fill = ir.tensor(np.ascontiguousarray(array.reshape(-1)[:1]))
        like = ir.val("", ir.DataType.from_numpy(array.dtype), array.shape)
        return self.op("ConstantOfShape", shape, like=like, name=name, value=fill)

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int]) -> ir.Value:
        """Add an input to the main graph under exactly this name, as `claim` allows."""
        self.claim(name)
        value = ir.val(name, dtype, tuple(shape))
        self.model.graph.inputs.append(value)
        return value

    def named(self, value: ir.Value, name: str) -> ir.Value:
        """Return a value that equals `value` and is called exactly `name`, as `claim` allows."""
        result = self.op("Identity", value)
        self.rename(result, name)
        return result

    def rename(self, value: ir.Value, name: str) -> None:
        """Call `value`, the result of a node, exactly `name`, as `claim` allows."""
        self.claim(name)
        value.name = name

    def claim(self, name: str) -> None:
        """Take `name`; a result inside of the model that has it gets another one.

        Raises `CompileError` where an input, output or constant of the model has it: those are
        promises too.
        """
        other = self.names.value(name)
        if other == name:
            return
        squatter = inner_result(self.model, name)
        if squatter is None:
            raise CompileError(
                f"Training needs the name '{name}', which the model uses already; rename it there."
            )
        squatter.name = other

    def add_output(self, node: ir.Node, index: int) -> ir.Value:
        """Return output `index` of an existing node, which gets all up to it that it has not yet.

        For what a forward operator can give besides its result (statistics, indices).
        """
        if len(node.outputs) <= index:
            node.resize_outputs(index + 1)
        absent = [at for at in range(index + 1) if not node.outputs[at].name]
        stem = node.outputs[0].name or node.name
        for at in absent:
            node.outputs[at].name = self.names.value(f"{stem}_{at}")
        if absent:
            infer_results(node, self.model.opset_imports)
        return node.outputs[index]

    def zeros(self, like: ir.Value) -> ir.Value:
        """Return zeros of the type and shape of `like`."""
        fill = ir.tensor(np.zeros(1, like.dtype.numpy()))  # type: ignore[union-attr]  # typed graph
        return self.op("ConstantOfShape", shape_of(like), value=fill)

    def _named(
        self, op_type: str, count: int, wanted: str | None = None
    ) -> tuple[str, list[ir.Value]]:
        """Return a new name for an operator, and so many values for it to make."""
        if wanted is None and self._rewritten is not None:
            wanted = f"{self._rewritten.outputs[0].name}_{op_type.lower()}"
        name = self.names.node(wanted or f"{self.scope}{op_type}")
        return name, [ir.Value(name=self.names.value(wanted or name)) for _ in range(count)]

    def _node(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        outputs: Sequence[ir.Value],
        domain: str,
        attributes: Mapping[str, Attribute],
    ) -> ir.Node:
        """Return an operator that is not put anywhere yet."""
        values = self._operands(inputs)
        given = {key: value for key, value in attributes.items() if value is not None}
        if op_type == "Reshape" and _has_zero(inputs[1]):
            given.setdefault("allowzero", 1)  # a size of 0 is none, not that of the input
        if domain:
            self.model.opset_imports.setdefault(domain, 1)
        return ir.node(op_type, values, given, domain=domain, outputs=outputs)

    def _put(self, node: ir.Node) -> None:
        if self.origin is not None:
            inherit_module(node, self.origin)
        self.point.put(node)

    def _operands(self, inputs: Sequence[Operand]) -> list[ir.Value | None]:
        like = next((item.dtype for item in inputs if isinstance(item, ir.Value)), None)
        return [self._operand(item, like) for item in inputs]

    def _operand(self, item: Operand, like: ir.DataType | None) -> ir.Value | None:
        if item is None or isinstance(item, ir.Value):
            return item
        if isinstance(item, np.ndarray):
            return self.constant(item)
        if isinstance(item, (bool, int, float)):
            if like is None:
                raise InternalError("a bare number needs a tensor beside it")
            return self.constant(np.asarray(item, like.numpy()))
        return self.constant(np.asarray(item, np.int64))


def _has_zero(shape: Operand) -> bool:
    return isinstance(shape, (Sequence, np.ndarray)) and 0 in np.asarray(shape)


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """Return the shape of `value`; raise `InternalError` if a size is open."""
    shape = static_shape(value)
    if shape is None:
        raise InternalError(f"the shape of '{value.name}' is open: {value.shape}")
    return shape


def rank_of(value: ir.Value) -> int:
    """Return the rank of `value`."""
    return len(shape_of(value))


class InsertionPoint:
    """A place in `graph`: before or behind one of its nodes, or at its end.

    What is put there lies in the order in which it is put. `once` remembers what was made there:
    nodes made later, which lie behind, may read it.
    """

    def __init__(
        self, graph: ir.Graph, before: ir.Node | None = None, behind: ir.Node | None = None
    ) -> None:
        self.graph = graph
        self._before = before
        self._behind = behind
        self._made: dict[tuple[object, ...], ir.Value] = {}

    @classmethod
    def before(cls, node: ir.Node) -> InsertionPoint:
        """Return the place before `node`."""
        return cls(graph_of(node), before=node)

    @classmethod
    def behind(cls, node: ir.Node) -> InsertionPoint:
        """Return the place behind `node`."""
        return cls(graph_of(node), behind=node)

    def put(self, node: ir.Node) -> None:
        """Put `node`, which is in no graph, behind what was put here before."""
        if self._before is not None:
            self.graph.insert_before(self._before, node)
        elif self._behind is not None:
            self.graph.insert_after(self._behind, node)
            self._behind = node
        else:
            self.graph.append(node)

    def once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> ir.Value:
        """Return what `make` made when it was first called here for `key`."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
