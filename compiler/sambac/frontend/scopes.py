"""Constants inside of subgraphs that hide values around them; few models have subgraphs at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from sambac.graph.nodes import subgraphs


def hidden(body: ir.Graph | ir.Function) -> Iterator[str]:
    """Find constants of subgraphs with the name of another value around: which is read is open."""
    return _hidden_inside(body, {})


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
