"""Walks over a model's graphs that passes and frontend share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias, cast

import onnx_ir as ir

Holder: TypeAlias = ir.Graph | ir.Node | ir.Function
"""What holds constants: a graph its initializers, a node or function its attributes."""


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs that `node` holds as attributes, in the order of the attributes."""
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def has_subgraphs(node: ir.Node) -> bool:
    """Tell whether `node` holds a graph as an attribute."""
    return any(True for _ in subgraphs(node))


def all_nodes(graph: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Yield the nodes of a graph or function, each followed by those of its subgraphs.

    Twice as fast as the library's own walk, which every pass and the verifier would feel.
    """
    for node in graph:
        yield node
        if node.attributes:
            for inner in subgraphs(node):
                yield from all_nodes(inner)


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield `graph` and all graphs inside it, outer ones first."""
    yield graph
    for node in graph:
        if node.attributes:
            for inner in subgraphs(node):
                yield from all_graphs(inner)


def all_tensors(model: ir.Model) -> Iterator[tuple[Holder, str, ir.TensorProtocol | None]]:
    """Yield the tensors of `model` and its functions, each with what holds it and its name there.

    Of an attribute of several tensors each comes by itself. An initializer may lack a tensor.
    """
    functions = model.functions.values()
    inner = (graph for function in functions for graph in function.subgraphs())
    for graph in chain(all_graphs(model.graph), inner):
        for name, value in graph.initializers.items():
            yield graph, name, value.const_value
    nodes = (node for body in (model.graph, *functions) for node in all_nodes(body))
    holders: Iterator[ir.Node | ir.Function] = chain(nodes, functions)
    for holder in holders:
        for name, attribute in holder.attributes.items():
            yield from ((holder, name, tensor) for tensor in _tensors_of(attribute))


def _tensors_of(attribute: ir.Attr) -> Sequence[ir.TensorProtocol]:
    """Return the tensors of an attribute; the library's own way to them asks for their sizes."""
    if attribute.is_ref() or attribute.value is None:
        return ()
    if attribute.type == ir.AttributeType.TENSOR:
        return (cast(ir.TensorProtocol, attribute.value),)
    if attribute.type == ir.AttributeType.TENSORS:
        return cast(Sequence[ir.TensorProtocol], attribute.value)
    return ()


def own_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the values that `graph` itself defines: inputs, initializers, outputs of its nodes."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def first_unmade(graph: ir.Graph, known: set[ir.Value] | None = None) -> str | None:
    """Describe the first value, in the order of the nodes, that is read before it is made.

    `known` are the values of enclosing graphs that are made by then; it is used as scratch space
    and has its old content afterwards. None means that the order is topological.
    """
    known = set() if known is None else known
    known.update(graph.inputs)
    known.update(graph.initializers.values())
    problem = None
    for node in graph:
        problem = _unmade_by(node, known)
        if problem is not None:
            break
        known.update(node.outputs)
    else:
        problem = next(
            (f"the graph output '{out.name}'" for out in graph.outputs if out not in known), None
        )
    known.difference_update(own_values(graph))
    return problem


def _unmade_by(node: ir.Node, known: set[ir.Value]) -> str | None:
    for value in node.inputs:
        if value is not None and value not in known:
            return f"the value '{value.name}', an input of '{node.name}' ({node.op_type}),"
    for inner in subgraphs(node):
        problem = first_unmade(inner, known)
        if problem is not None:
            return problem
    return None
