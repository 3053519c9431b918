"""Sparse constants become dense ones: onnx_ir knows only those, and kernels read only those."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper

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
