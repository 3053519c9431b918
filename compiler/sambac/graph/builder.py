"""Appending operators to a graph: named, typed and shaped as they are made.

Gradient rules and optimizer formulas are written with it:

    b = Builder(model)
    y = b.op("Mul", x, 0.5)                       # numbers take the type of the first tensor
    s = b.op("ReduceSum", y, [1], keepdims=1)     # lists of integers become int64 tensors
    h, w = b.ops("Split", y, outputs=2, axis=0, num_outputs=2)

Shapes have to be known: training fixes every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
from onnx import defs, shape_inference

from sambac.errors import CompileError, InternalError

from .module_paths import inherit_module
from .names import inner_result, node_names, value_names
from .node_facts import static_shape
from .type_protos import read_shape, read_type, value_info

Operand: TypeAlias = ir.Value | float | int | bool | Sequence[int] | np.ndarray | None
Attribute: TypeAlias = (
    int | float | str | Sequence[int] | Sequence[float] | ir.TensorProtocol | None
)

_SMALL = 1024
"""Constants of at most this many elements are shown to shape inference."""


class Builder:
    """Appends nodes to a graph of one model, the main one; every name it makes is new to the model.

    `scope` begins the names of all nodes and values. Constants are interned: equal ones are one
    initializer. What is made while there is an `origin` comes from the module of that node.
    """

    def __init__(self, model: ir.Model, scope: str = "") -> None:
        self.model = model
        self.graph = model.graph
        self.scope = scope
        self.origin: ir.Node | None = None
        self._value_name = value_names(model)
        self._node_name = node_names(model)
        self._constants: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}

    def op(
        self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Attribute
    ) -> ir.Value:
        """Append an operator and return its first output."""
        return self.ops(op_type, *inputs, domain=domain, outputs=1, **attributes)[0]

    def ops(
        self,
        op_type: str,
        *inputs: Operand,
        outputs: int,
        domain: str = "",
        **attributes: Attribute,
    ) -> tuple[ir.Value, ...]:
        """Append an operator and return all of its outputs."""
        values = self._operands(inputs)
        if op_type == "Reshape" and _has_zero(inputs[1]):
            attributes["allowzero"] = 1  # a size of 0 is none, not that of the input
        stem = f"{self.scope}{op_type}"
        name = self._node_name(stem)
        results = [ir.Value(name=self._value_name(name)) for _ in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        node = ir.node(op_type, values, given, domain=domain, outputs=results, name=name)
        self.model.opset_imports.setdefault(domain, 1)
        self.infer(node)
        self._add(node)
        return tuple(results)

    def append(self, node: ir.Node) -> None:
        """Append `node`, whose outputs are typed and shaped, under a new name."""
        node.name = self._node_name(f"{self.scope}{node.op_type}")
        self._add(node)

    def _add(self, node: ir.Node) -> None:
        if self.origin is not None:
            inherit_module(node, self.origin)
        self.graph.append(node)

    def inside(self, graph: ir.Graph) -> Builder:
        """Return a builder that appends to `graph`, one that a node of the model will hold.

        Both share their names and their constants, which lie in the main graph.
        """
        inner = copy(self)
        inner.graph = graph
        return inner

    def fresh(self, stem: str, dtype: ir.DataType | None, shape: Sequence[int]) -> ir.Value:
        """Return a value of a new name that nothing makes yet: an input or output to be."""
        return ir.val(self._value_name(f"{self.scope}{stem}"), dtype, tuple(shape))

    def constant(self, array: np.ndarray, name: str = "constant") -> ir.Value:
        """Return the initializer with this content, made when first asked for."""
        array = np.asarray(array)
        key = (str(array.dtype), array.shape, array.tobytes())
        value = self._constants.get(key)
        if value is None:
            fresh = self._value_name(f"{self.scope}{name}")
            value = ir.val(fresh, const_value=ir.Tensor(array, name=fresh))
            self.model.graph.register_initializer(value)
            self._constants[key] = value
        return value

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int]) -> ir.Value:
        """Add an input to the graph under exactly this name, as `claim` allows."""
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
        other = self._value_name(name)
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
            node.outputs[at].name = self._value_name(f"{stem}_{at}")
        if absent:
            self.infer(node)
        return node.outputs[index]

    def zeros(self, like: ir.Value) -> ir.Value:
        """Return zeros of the type and shape of `like`."""
        fill = ir.tensor(np.zeros(1, like.dtype.numpy()))  # type: ignore[union-attr]  # typed graph
        return self.op("ConstantOfShape", shape_of(like), value=fill)

    def infer(self, node: ir.Node) -> None:
        """Set the types and shapes of the outputs of `node` from those of its inputs."""
        if node.domain != "":
            self._like_first(node)
            return
        schema = defs.get_schema(node.op_type, self.model.opset_imports[""], "")
        proto = ir.serde.serialize_node(node)
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for value in node.inputs:
            if value is None:
                continue
            types[str(value.name)] = value_info(value).type
            tensor = value.const_value
            if value.is_initializer() and tensor is not None and tensor.size <= _SMALL:
                data[str(value.name)] = ir.serde.serialize_tensor(tensor)
        try:
            found = shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=_opsets(self.model)
            )
        except shape_inference.InferenceError as error:
            raise InternalError(f"a badly made {node.op_type}: {error}") from error
        for value in node.outputs:
            if value.name in found:
                value.type = read_type(found[value.name])
                value.shape = read_shape(found[value.name])

    def _like_first(self, node: ir.Node) -> None:
        """Contrib operators that rules use keep type and shape of their first input."""
        first = node.inputs[0]
        assert first is not None
        node.outputs[0].type, node.outputs[0].shape = first.type, first.shape

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


def _opsets(model: ir.Model) -> list[onnx.OperatorSetIdProto]:
    return [
        onnx.OperatorSetIdProto(domain=domain, version=version)
        for domain, version in sorted(model.opset_imports.items())
    ]
