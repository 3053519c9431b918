"""Sparse constants become dense ones: onnx_ir knows only those, and kernels read only those."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper


def densify(model: onnx.ModelProto) -> None:
    """Replace the sparse initializers and sparse Constant nodes of `model`, everywhere in it."""
    _densify_graph(model.graph)
    for function in model.functions:
        _densify_nodes(function.node)


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
    shape = tuple(sparse.dims)
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    if indices.ndim == 2:
        indices = np.ravel_multi_index(tuple(indices.T), shape)
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[indices] = values
    return numpy_helper.from_array(dense.reshape(shape), sparse.values.name)
