"""The bodies that the ONNX standard gives for operators: functions of other operators.

    Mish(x)  ->  x * Tanh(Softplus(x))

A node becomes the call of a function with its body; inlining that function is the expansion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import onnx
import onnx_ir as ir
from onnx import defs

from .names import ModelNames
from .nodes import all_graphs, all_nodes, first_unmade, own_values, subgraphs
from .opsets import mark_differing

# The domain of the functions that stand for bodies while they wait to be inlined.
_DOMAIN = "expanded"


class _Schema(Protocol):
    """The part of `onnx.defs.OpSchema` about function bodies, which its type hints lack."""

    @property
    def all_function_opset_versions(self) -> list[int]: ...
    @property
    def function_opset_versions(self) -> list[int]: ...
    @property
    def has_function(self) -> bool: ...
    @property
    def has_context_dependent_function(self) -> bool: ...
    @property
    def attributes(self) -> Mapping[str, defs.OpSchema.Attribute]: ...
    def get_function_with_opset_version(self, version: int) -> bytes: ...
    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, input_types: Sequence[bytes]
    ) -> bytes: ...


def body_of(node: ir.Node, opsets: Mapping[str, int]) -> ir.Function | None:
    """Return the newest body that stands for the node and means the same in the model's opset."""
    schema = _schema(node, opsets)
    if schema is None or any(_captures(graph) for graph in subgraphs(node)):
        return None
    newest = node.version or opsets.get("", 1)
    for version in sorted(schema.all_function_opset_versions, reverse=True):
        proto = _body_of_version(schema, version, node) if version <= newest else None
        if proto is not None:
            body = ir.serde.deserialize_function(proto)
            if not mark_differing(body, body.opset_imports, opsets) or node.version is not None:
                return body
    return None


def may_have_body(node: ir.Node, opsets: Mapping[str, int]) -> bool:
    """Return whether ONNX gives a body for the operator of `node`, on some types at least."""
    schema = _schema(node, opsets)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def call_body(model: ir.Model, node: ir.Node, body: ir.Function, number: int) -> None:
    """Turn `node` into a call of `body`, its `body_of`, which becomes a function of `model`.

    `number` tells this call from others that wait to be inlined.
    """
    _prepare_call(node, model.opset_imports)
    for part in all_nodes(body):
        part.name = f"{node.name}_{part.op_type}"
    node.domain, node.op_type, node.version = _DOMAIN, f"{node.op_type}_{number}", None
    body.domain, body.name = node.domain, node.op_type
    model.functions[body.identifier()] = body


def hand_over(node: ir.Node, names: ModelNames) -> None:
    """Give a SequenceMap as inputs the tensors that its graph reads of enclosing ones.

    Each step then gets them whole, as it had them before. Sequences stay captured: as inputs they
    would be gone through. Other operators are left as they are.
    """
    graph = next(subgraphs(node), None)
    if graph is None or (node.domain, node.op_type) != ("", "SequenceMap"):
        return
    own = {value for inner in all_graphs(graph) for value in own_values(inner)}
    readers = tuple(all_nodes(graph))
    taken = dict.fromkeys(
        value for reader in readers for value in reader.inputs if value is not None
    )
    for value in taken:
        if value in own or not isinstance(value.type, ir.TensorType):
            continue
        given = ir.Value(name=names.value(str(value.name)), type=value.type, shape=value.shape)
        graph.inputs.append(given)
        for reader, index in tuple(value.uses()):
            if reader in readers:
                reader.replace_input_with(index, given)
        node.resize_inputs(len(node.inputs) + 1)
        node.replace_input_with(len(node.inputs) - 1, value)


def _schema(node: ir.Node, opsets: Mapping[str, int]) -> _Schema | None:
    try:
        opset = node.version or opsets.get(node.domain, 1)
        return cast("_Schema", defs.get_schema(node.op_type, opset, node.domain))
    except defs.SchemaError:
        return None


def _body_of_version(schema: _Schema, version: int, node: ir.Node) -> onnx.FunctionProto | None:
    if version in schema.function_opset_versions:
        content = schema.get_function_with_opset_version(version)
    else:
        types = [_type_proto(value) for value in node.inputs]
        content = schema.get_context_dependent_function_with_opset_version(
            version, ir.serde.serialize_node(node).SerializeToString(), types
        )
    if not content:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(content)
    # Bodies declare all outputs of the operator but make only those that the node has.
    del body.output[len(node.outputs) :]
    return body if _stand_in(body, node) else None


def _stand_in(body: onnx.FunctionProto, node: ir.Node) -> bool:
    """Define outputs that `body` declares but does not make; false if one of them is read."""
    made = {*body.input, *(name for inner in body.node for name in inner.output)}
    for name, output in zip(body.output, node.outputs, strict=False):
        if name not in made:
            if output.uses() or output.is_graph_output():
                return False
            body.node.append(onnx.helper.make_node("Constant", [], [name], value_float=0.0))
    return True


def _captures(graph: ir.Graph) -> bool:
    """Return whether `graph` reads values of enclosing graphs, which no body can."""
    return first_unmade(graph) is not None


def _type_proto(value: ir.Value | None) -> bytes:
    if value is None or value.type is None:
        return b""
    info = ir.serde.serialize_value(value)
    return bytes(info.type.SerializeToString())


def _prepare_call(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Write out the attributes that the node leaves at their defaults, for the body to read.

    A graph is no parameter of a body: one that depends on a graph contains it.
    """
    schema = _schema(node, opsets)
    for name, given in list(node.attributes.items()):
        if given.type == ir.AttributeType.GRAPH:
            del node.attributes[name]
    for name, attribute in schema.attributes.items() if schema else ():
        if name not in node.attributes and attribute.default_value.name:
            node.attributes[name] = ir.serde.deserialize_attribute(attribute.default_value)
