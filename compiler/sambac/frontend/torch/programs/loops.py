"""Loops of known length that train are written out, as nothing trains through control flow.

    c, ys = scan(f, c0, xs)    ->    c1, y1 = f(c0, xs[0]); c2, y2 = f(c1, xs[1]); ...
                                     c, ys = cn, stack([y1, ..., yn])
    ys = map(f, xs)            ->    ys = scan(f, none, xs), or written out in the same way

Other loops stay what they are: ONNX has an operator for `scan`, and none for `map`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from sambac.frontend.torch.programs.names import copied_graph

from .names import renamed
from .regions import inlined, taken_apart
from .writes import active_nodes, noted

_SCAN = torch.ops.higher_order.scan
_MAP = torch.ops.higher_order.map_impl
_LOOPS = (_SCAN, _MAP)
_aten = torch.ops.aten


def with_loops_written_out(program: ExportedProgram, *, training: bool) -> ExportedProgram:
    """Return `program` with loops written out that train; itself if it has no loops.

    A loop trains, in `training`, if it depends on a parameter. The graph of the argument is not
    changed.
    """
    if not any(map(_has_loops, _graphs(program.graph_module))):
        return program
    module = copied_graph(program)
    parameters = set(program.graph_signature.inputs_to_parameters) if training else set[str]()
    while (found := _next(module.graph, parameters)) is not None:
        _write_out(module, found)
    for part in _graphs(module):
        for node in part.graph.find_nodes(op="call_function", target=_MAP):
            body, rows, others = node.args
            node.target, node.args = _SCAN, (body, [], [*rows], tuple(others))
        part.recompile()
    return program._update(module, renamed(program.graph_signature, module.graph))


def _graphs(module: fx.GraphModule) -> list[fx.GraphModule]:
    """Return the graph, and those of bodies and branches in it."""
    return [part for part in module.modules() if isinstance(part, fx.GraphModule)]


def _has_loops(module: fx.GraphModule) -> bool:
    return any(map(_is_loop, module.graph.nodes))


def _is_loop(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target in _LOOPS


def _next(graph: fx.Graph, parameters: set[str]) -> fx.Node | None:
    """Return the first loop that trains and is of known length; bodies of others have loops too."""
    active = active_nodes(graph, parameters)
    loops = (node for node in graph.nodes if _is_loop(node) and node in active)
    return next((node for node in loops if isinstance(_length(node), int)), None)


def _parts(node: fx.Node) -> tuple[fx.Node, Sequence[Any], Sequence[Any], Sequence[Any]]:
    """Return the body of a loop, what it carries, what it goes through, and what else it reads."""
    if node.target is _MAP:
        body, rows, others = node.args
        return body, (), rows, others  # type: ignore[return-value]  # the arguments of `map_impl`
    return node.args  # type: ignore[return-value]  # those of `scan`


def _length(node: fx.Node) -> object:
    _, _, rows, _ = _parts(node)
    return rows[0].meta["val"].shape[0]


def _write_out(module: fx.GraphModule, node: fx.Node) -> None:
    reference, carried, rows, others = _parts(node)
    count, length = len(carried), _length(node)
    assert isinstance(length, int)
    made: list[Sequence[Any]] = []
    with module.graph.inserting_before(node):
        for at in range(length):
            row = [_call(node, _aten.select.int, (each, 0, at)) for each in rows]
            results = inlined(module, reference, [*carried, *row, *others])
            carried = results[:count]
            made.append(results[count:])
        stacks = [
            _call(node, _aten.stack.default, ([*column],)) for column in zip(*made, strict=True)
        ]
    taken_apart(module, node, reference, [*carried, *stacks])


def _call(like: fx.Node, target: Any, args: tuple[Any, ...]) -> fx.Node:
    """Add a call that stands where `like` does."""
    made = like.graph.call_function(target, args)
    values = fx.map_arg(args, lambda one: one.meta["val"])
    made.meta = noted(like, val=target(*values))
    return made
