"""What onnx_ir would not read in a message: values declared as maps, and sparse constants.

Maps it has no type for; sparse constants become dense ones, which is all that kernels read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from sambac.graph import protos
from sambac.graph.value_types import proto_holds_map, read_type


def without_maps(
    model: onnx.ModelProto,
) -> tuple[onnx.ModelProto, Mapping[str, ir.TypeProtocol | None]]:
    """Return `model` with no value declared as a map, and the types its inputs lost, by name.

    Without any, that is `model` itself; otherwise a copy. Types of values that operators make
    can be inferred again. Raises `ValueError` for types that nobody knows.
    """
    if not any(True for _ in _maps(model)):
        return model, {}
    types = {
        info.name: read_type(info.type) for info in model.graph.input if proto_holds_map(info.type)
    }
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in _maps(copy):
        info.ClearField("type")
    return copy, types


def _maps(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield every declaration of a value that is or contains maps."""
    infos = [*_declared(model.graph)]
    for function in model.functions:
        infos += function.value_info
        infos += _inside(function.node)
    return (info for info in infos if proto_holds_map(info.type))


def _declared(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.output, *graph.value_info)
    yield from _inside(graph.node)


def _inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.ValueInfoProto]:
    for node in nodes:
        for graph in protos.subgraphs(node):
            yield from _declared(graph)


# A dense form of so many elements is a mistake, not a model.
_MOST_ELEMENTS = 1 << 31


def densified(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with dense forms of its sparse initializers and sparse Constant nodes.

    Without any, that is `model` itself; otherwise a copy.
    """
    sparse = _is_sparse(model.graph) or any(_any_sparse(f.node) for f in model.functions)
    if not sparse:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _densify_graph(copy.graph)
    for function in copy.functions:
        _densify_nodes(function.node)
    return copy


def _is_sparse(graph: onnx.GraphProto) -> bool:
    return bool(graph.sparse_initializer) or _any_sparse(graph.node)


def _any_sparse(nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(
        attribute.type == onnx.AttributeProto.SPARSE_TENSOR
        or (attribute.type == onnx.AttributeProto.GRAPH and _is_sparse(attribute.g))
        or any(_is_sparse(graph) for graph in attribute.graphs)
        for node in nodes
        for attribute in node.attribute
    )


def _densify_graph(graph: onnx.GraphProto) -> None:
    graph.initializer.extend(_dense(sparse) for sparse in graph.sparse_initializer)
    graph.ClearField("sparse_initializer")
    _densify_nodes(graph.node)


def _densify_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                attribute.t.CopyFrom(_dense(attribute.sparse_tensor))
                attribute.ClearField("sparse_tensor")
                attribute.type = onnx.AttributeProto.TENSOR
                attribute.name = "value"
            elif attribute.type == onnx.AttributeProto.GRAPH:
                _densify_graph(attribute.g)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    _densify_graph(graph)


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return the dense form; indices are linear, or one row of coordinates per value."""
    if any(tensor.external_data for tensor in (sparse.values, sparse.indices)):
        # Read here, it would come from a path relative to where the compiler was started.
        raise ValueError(f"the sparse constant '{sparse.values.name}' lies in another file")
    shape = tuple(sparse.dims)
    if any(size < 0 for size in shape) or math.prod(shape) >= _MOST_ELEMENTS:
        raise ValueError(f"the sparse constant '{sparse.values.name}' has the sizes {list(shape)}")
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    if indices.ndim == 2:
        indices = np.ravel_multi_index(tuple(indices.T), shape)
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[indices] = values
    return numpy_helper.from_array(dense.reshape(shape), sparse.values.name)
