"""Walks over serialised graphs, as `traversal` has them for graphs in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that `node` holds as attributes, in the order of the attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


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
