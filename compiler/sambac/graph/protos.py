"""Models as ONNX messages: without the data of their weights, and under other names.

Shape inference and type queries need the graph and the small constants, never the weights: on the
skeleton of a model they take milliseconds, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import onnx
import onnx_ir as ir

from sambac.errors import CompileError, root_cause

from .constants import is_absent
from .value_types import value_info

# Shapes, axes, scales and region-of-interest vectors steer inference; all are far smaller.
_MAX_DATA_BYTES = 1024

_NOTHING: Mapping[str, onnx.TensorProto] = MappingProxyType({})


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return `model` as a message in which large initializers of the main graph are inputs.

    Values inside carry the types that `model` knows; graph outputs too. Raises `CompileError`
    for a model whose names are no text or whose attributes are not of the type they claim.
    """
    try:
        return _skeleton(model)
    except (ir.serde.SerdeError, UnicodeDecodeError) as error:
        raise CompileError(
            f"the model is damaged ({root_cause(error)}); export or copy it again"
        ) from error


def _skeleton(model: ir.Model) -> onnx.ModelProto:
    proto = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    graph = proto.graph
    graph.name = model.graph.name or "main"
    for value in model.graph.inputs:
        graph.input.append(value_info(value))
    for name, value in model.graph.initializers.items():
        _add_constant(graph, name, value.const_value)
    for node in model.graph:
        ir.serde.serialize_node_into(graph.node.add(), node)
    for value in model.graph.outputs:
        graph.output.append(value_info(value))
    return proto


def _add_constant(graph: onnx.GraphProto, name: str, tensor: ir.TensorProtocol | None) -> None:
    if tensor is None:
        return
    small = tensor.nbytes <= _MAX_DATA_BYTES and not is_absent(tensor)
    if small or tensor.dtype == ir.DataType.STRING:
        message = graph.initializer.add()
        ir.serde.serialize_tensor_into(message, tensor)
        message.name = name
        return
    info = graph.input.add()
    info.name = name
    info.type.tensor_type.elem_type = int(tensor.dtype)
    shape = info.type.tensor_type.shape
    for size in tensor.shape.numpy():
        shape.dim.add().dim_value = size


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that `node` holds as attributes, in the order of the attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def copy_constants_inside(
    graph: onnx.GraphProto, outside: Mapping[str, onnx.TensorProto] = _NOTHING
) -> None:
    """Give bodies and branches in `graph` copies of the constants that they read outside.

    The ONNX library infers shapes in them from the values of their own constants alone. `outside`
    are the constants around `graph`.
    """
    constants = {**outside, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        for inner in subgraphs(node):
            own = {info.name for info in inner.input}.union(
                (tensor.name for tensor in inner.initializer),
                *(other.output for other in inner.node),
            )
            read = {name for other in inner.node for name in other.input}
            copied = sorted((read - own) & constants.keys())
            inner.initializer.extend(constants[name] for name in copied)
            seen = {name: one for name, one in constants.items() if name not in own}
            copy_constants_inside(inner, seen)


def rename_graph(graph: onnx.GraphProto, renamed: Callable[[str], str]) -> None:
    """Give every value in `graph`, and in the graphs inside it, the name `renamed` has for it."""
    for value in (*graph.input, *graph.value_info):
        value.name = renamed(value.name)
    for tensor in graph.initializer:
        tensor.name = renamed(tensor.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = renamed(sparse.values.name)
    for node in graph.node:
        rename_node(node, renamed)
    for value in graph.output:
        value.name = renamed(value.name)


def rename_node(node: onnx.NodeProto, renamed: Callable[[str], str]) -> None:
    """Rename what `node` reads and writes, and the values of the graphs inside it."""
    node.input[:] = [renamed(name) for name in node.input]
    node.output[:] = [renamed(name) for name in node.output]
    for graph in subgraphs(node):
        rename_graph(graph, renamed)
