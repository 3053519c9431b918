"""Draws of yes and no, however a module writes them, become one operator while it trains.

    floor(p + rand(...))                  ->  bernoulli(ones, p)
    rand(...) < p,  rand(...) <= p        ->  bernoulli(ones, p) != 0
    rand(...) > p,  rand(...) >= p        ->  bernoulli(ones, 1 - p) != 0
    bernoulli(full(..., p))               ->  bernoulli(ones, p)

Stochastic depth (drop path) is written so. What bernoulli draws are masks that the host makes from
a seed, as those of dropout are; uniform numbers would be onnxruntime's, which nobody can repeat.

Uniform numbers that have several readers stay: rand > 0.3 and rand < 0.7 of the same numbers
depend on each other, and two draws would not.
"""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

_aten = torch.ops.aten
_UNIFORM = (_aten.rand.default, _aten.rand_like.default)
_BELOW = (_aten.lt.Scalar, _aten.le.Scalar)
_ABOVE = (_aten.gt.Scalar, _aten.ge.Scalar)


def name_draws(program: ExportedProgram) -> None:
    """Rewrite the draws of `program`, which is functional, in place."""
    graph = program.graph
    for target in _UNIFORM:
        for node in graph.find_nodes(op="call_function", target=target):
            _name_uniform(graph, node)
    for node in graph.find_nodes(op="call_function", target=_aten.bernoulli.default):
        (source,) = node.all_input_nodes
        if source.target is _aten.full.default and isinstance(source.args[1], (int, float)):
            _replace(graph, node, source, float(source.args[1]))
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _name_uniform(graph: fx.Graph, drawn: fx.Node) -> None:
    """Rewrite the reader of uniform numbers, if there is one alone and it makes a draw."""
    user = _only_reader(drawn)
    if user is None:
        return
    if user.target in (*_BELOW, *_ABOVE) and isinstance(user.args[1], (int, float)):
        below = float(user.args[1])
        _replace(graph, user, drawn, below if user.target in _BELOW else 1 - below)
        return
    shift, reader = _shift(user), _only_reader(user)
    if shift is not None and reader is not None and reader.target is _aten.floor.default:
        _replace(graph, reader, drawn, shift)


def _only_reader(node: fx.Node) -> fx.Node | None:
    """Return the one reader of `node`; None if there is none, or if there are several."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def _shift(node: fx.Node) -> float | None:
    """Return the number that `node` adds to a tensor, or None if it does something else."""
    plain = node.target is _aten.add.Tensor and len(node.args) == 2 and not node.kwargs
    number = node.args[1] if plain else None
    return float(number) if isinstance(number, (int, float)) else None


def _replace(graph: fx.Graph, node: fx.Node, like: fx.Node, p: float) -> None:
    """Let a draw of ones at rate `p` in the shape of `like` stand for `node`."""
    if not 0 <= p <= 1:
        return
    shape = like.meta["val"]
    boolean = node.meta["val"].dtype == torch.bool
    with graph.inserting_before(node):
        ones = graph.call_function(_aten.full.default, (list(shape.shape), 1.0))
        ones.kwargs = {"dtype": shape.dtype, "device": shape.device}
        drawn = graph.call_function(_aten.bernoulli.p, (ones, p))
        result = graph.call_function(_aten.ne.Scalar, (drawn, 0)) if boolean else drawn
    for made in (ones, drawn):
        made.meta = {**node.meta, "val": like.meta["val"]}
    result.meta = dict(node.meta)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
