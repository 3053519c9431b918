"""What names stand for: what operators read is defined somewhere, and in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from sambac.graph.nodes import all_nodes, subgraphs


def undefined(model: ir.Model) -> Iterator[str]:
    """Find what operators read and nothing defines; a function sees nothing from outside."""
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        defined = set(body.inputs)
        where = f"function '{body.name}'"
        if isinstance(body, ir.Graph):
            where = "the model"
            defined.update(body.initializers.values())
        for graph in body.subgraphs():
            defined.update(graph.inputs, graph.initializers.values())
        for node in all_nodes(body):
            for value in node.inputs:
                if value is not None and value.producer() is None and value not in defined:
                    yield f"{where} reads '{value.name}', which it lacks"


def hidden(model: ir.Model) -> Iterator[str]:
    """Find constants of subgraphs with the name of another value around: which is read is open."""
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        yield from _hidden_inside(body, {})


def _hidden_inside(graph: ir.Graph | ir.Function, around: Mapping[str, ir.Value]) -> Iterator[str]:
    inner = [inside for node in graph for inside in subgraphs(node)]
    if not inner:
        return
    constants = graph.initializers if isinstance(graph, ir.Graph) else {}
    own = (*graph.inputs, *constants.values(), *(out for node in graph for out in node.outputs))
    known = {**around, **{str(value.name): value for value in own}}
    for inside in inner:
        for name, value in inside.initializers.items():
            if name in known and not _is_same(value, known[name]):
                yield f"'{name}' is a constant of a subgraph and another value around it"
        yield from _hidden_inside(inside, known)


def _is_same(value: ir.Value, other: ir.Value) -> bool:
    one, two = value.const_value, other.const_value
    return (
        one is not None
        and two is not None
        and (one.dtype, one.shape) == (two.dtype, two.shape)
        and one.tobytes() == two.tobytes()
    )
