"""Nodes, their values and their graphs: walks over them, what they say, and who reads what.

Stops are values through which no gradient flows, although the operator has one: PyTorch's `detach`.
The mark stands on an Identity node and counts until the gradients are made; simplification, which
comes later, removes the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, cast

import onnx_ir as ir

Holder: TypeAlias = ir.Graph | ir.Node | ir.Function
"""What holds constants: a graph its initializers, a node or function its attributes."""

_STOP, _CALM, _OPEN = "stop_gradient", "calm_gradient", "open_limits"


def graph_of(node: ir.Node) -> ir.Graph:
    """Return the graph that `node` is in."""
    if node.graph is None:
        raise ValueError(f"node {node.name} is in no graph")
    return node.graph


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of `node`, None where it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def int_attribute(node: ir.Node, name: str, default: int = 0) -> int:
    """Return an integer attribute of `node` or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """Return a floating-point attribute of `node` or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_float()


def text_attribute(node: ir.Node, name: str, default: str) -> str:
    """Return a text attribute of `node` or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """Return the values of all attributes of `node` by name, for another one like it."""
    return {attribute.name: attribute.value for attribute in node.attributes.values()}


def modelled_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape of `value` with 1 for every open dimension, None without a rank.

    So costs are estimated where only a run tells sizes, such as that of the batch.
    """
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape of `value` where every dimension is a number, else None."""
    if value is None or value.shape is None:
        return None
    dims = tuple(dim for dim in value.shape if isinstance(dim, int))
    return dims if len(dims) == len(value.shape) else None


def same_shape(one: ir.Value, other: ir.Value) -> bool:
    """Tell whether two shapes are known to be the same; sizes that are open have their names."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return False
    return all(map(same_size, one.shape, other.shape))


def same_size(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    """Tell whether two sizes are known to be the same."""
    return one == other and not (isinstance(one, ir.SymbolicDim) and one.value is None)


def mark_stop(node: ir.Node) -> None:
    """Let no gradient flow through `node`, an Identity."""
    node.metadata_props[_STOP] = "1"


def is_stop(node: ir.Node) -> bool:
    """Tell whether `node` bears the mark."""
    return _STOP in node.metadata_props


def mark_calm(node: ir.Node) -> None:
    """Let a gradient that is no number be 0 behind `node`, an Identity."""
    node.metadata_props[_CALM] = "1"


def is_calm(node: ir.Node) -> bool:
    """Tell whether `node` bears that mark."""
    return _CALM in node.metadata_props


def mark_open(node: ir.Node) -> None:
    """Let no gradient pass at the very limits of `node`, a Clip."""
    node.metadata_props[_OPEN] = "1"


def is_open(node: ir.Node) -> bool:
    """Tell whether `node` bears that mark."""
    return _OPEN in node.metadata_props


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


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what `node` reads, what its subgraphs read and return included."""
    yield from (value for value in node.inputs if value is not None)
    for graph in subgraphs(node):
        for inner in graph:
            yield from reads(inner)
        yield from graph.outputs


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
        if node.attributes or not known.issuperset(node.inputs):
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


def supersede(old: ir.Value, new: ir.Value) -> None:
    """Let all readers of `old` read `new`, which gets its name and its place among outputs."""
    name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None
    new.name = name


def _adopt_facts(value: ir.Value, other: ir.Value) -> None:
    """Take what is known about an equal value: the type, and dimensions that are numbers."""
    if value.type is None:
        value.type = other.type
    if static_shape(value) is None and other.shape is not None and not value.is_graph_input():
        value.shape = other.shape


def copy_node(
    node: ir.Node,
    copies: dict[ir.Value, ir.Value],
    name: str,
    value_name: Callable[[ir.Value], str],
) -> ir.Node:
    """Return a copy of `node`, called `name`, which belongs to no graph yet.

    Where `copies` has a value for what `node` reads, the copy reads that. What the copy makes has
    the type and shape of what `node` makes, and is added to `copies`; `value_name` returns its
    name. Outputs that `node` leaves out are left out of the copy too.
    """
    outputs = [
        ir.Value(name=value_name(value) if value.name else "", type=value.type, shape=value.shape)
        for value in node.outputs
    ]
    copy = ir.Node(
        node.domain,
        node.op_type,
        [None if value is None else copies.get(value, value) for value in node.inputs],
        list(node.attributes.values()),
        outputs=outputs,
        name=name,
        version=node.version,
        metadata_props=dict(node.metadata_props),
    )
    copies.update(zip(node.outputs, outputs, strict=True))
    return copy
