"""Derivatives that forward takes, written out as the operators that they are.

    y = tanh(x)                            y = tanh(x)
    dx = derivative([y], [d], [x])   ->    dx = d * (1 - y * y)

What lies between `x` and `y` is run once more, differentiated by PyTorch, and its operators are
recorded. All of them are such that can be differentiated again: a derivative of `dx` is the next
one to be written out, and a program that trains differentiates them as any others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from sambac.errors import CompileError
from sambac.frontend.torch.errors import refusal
from sambac.frontend.torch.own_operators import DERIVATIVE, VARIABLE

from .views import views_of_any_strides
from .names import renamed
from .repeatedly import BACKWARD, FORWARD

_aten = torch.ops.aten
_DETACH = _aten.detach.default
_DROPOUT = _aten.dropout.default
_DRAWS = torch.Tag.nondeterministic_seeded


def without_derivatives(program: ExportedProgram, name: str) -> ExportedProgram:
    """Return `program`, which is functional, with the formulas of derivatives that it takes.

    `name` is what messages call it. Raises `CompileError` for what cannot be differentiated.
    """
    module = program.graph_module
    if any(_taken(part.graph) for part in _parts(program) if part is not module):
        raise CompileError(
            f"{name} takes derivatives inside torch.cond, scan or map, which cannot be "
            "recorded; take them outside of it"
        )
    taken = _taken(program.graph)
    if not taken:
        return program
    for node in taken:
        try:
            _write_out(node)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            raise refusal(name, error) from error
    for node in program.graph.find_nodes(op="call_function", target=VARIABLE):
        node.replace_all_uses_with(node.args[0])
    module.graph.eliminate_dead_code()
    module.recompile()
    return program._update(module, renamed(program.graph_signature, module.graph))


def takes_derivatives(program: ExportedProgram) -> bool:
    """Tell whether derivatives are taken in `program`."""
    return any(_taken(part.graph) for part in _parts(program))


def _parts(program: ExportedProgram) -> list[fx.GraphModule]:
    """Return the graph of `program`, and those inside of it."""
    return [part for part in program.graph_module.modules() if isinstance(part, fx.GraphModule)]


def _taken(graph: fx.Graph) -> list[fx.Node]:
    return list(graph.find_nodes(op="call_function", target=DERIVATIVE))


@dataclass(frozen=True)
class _Part:
    """What lies between `sources` and `results`: `nodes` in their order, which read `others` too.

    Sources that depend on others of them are among the nodes; `roots` are the rest.
    """

    results: Sequence[fx.Node]
    sources: Sequence[fx.Node]
    roots: Sequence[fx.Node]
    nodes: Sequence[fx.Node]
    others: Sequence[fx.Node]

    @classmethod
    def between(cls, results: Sequence[fx.Node], sources: Sequence[fx.Node]) -> _Part:
        """Return what lies between them."""
        graph = results[0].graph
        depend = set(sources)
        roots = []
        for node in graph.nodes:
            begins = node.target is _DETACH or depend.isdisjoint(node.all_input_nodes)
            if not begins:
                depend.add(node)
            elif node in depend:
                roots.append(node)
        wanted = set(results)
        for node in reversed(graph.nodes):
            if node in wanted:
                wanted.update(node.all_input_nodes)
        nodes = [one for one in graph.nodes if one in depend & wanted and one not in roots]
        read = {one for node in nodes for one in node.all_input_nodes}.union(results)
        return cls(results, sources, roots, nodes, [*read.difference(nodes, roots)])


def _write_out(taken: fx.Node) -> None:
    """Put the operators of a derivative in the place of it."""
    results, incoming, sources, batched = taken.args
    _spell_dropouts(_Part.between(results, sources).nodes)
    part = _Part.between(results, sources)
    given = (*part.roots, *part.others, *incoming)
    traced = _traced(part, given, batched=batched)
    stands = dict(zip(traced.find_nodes(op="placeholder"), given, strict=True))
    graph = taken.graph
    with graph.inserting_before(taken):
        for node in traced.nodes:
            if node.target is _DETACH:  # what the engine keeps, and no stop
                stands[node] = stands[node.args[0]]
            elif node.op == "call_function":
                stands[node] = graph.node_copy(node, stands.__getitem__)
                stands[node].meta = {**taken.meta, "val": node.meta["val"]}
    gradients = [stands[one] for one in traced.output_node().args[0]]
    for user in [*taken.users]:
        user.replace_all_uses_with(gradients[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(taken)


def _spell_dropouts(nodes: Sequence[fx.Node]) -> None:
    """Let dropouts be products with masks, which are the same ones forward and backward."""
    for node in nodes:
        if node.target is not _DROPOUT or not node.args[2]:
            continue
        x, *settings = node.args
        with node.graph.inserting_before(node):
            ones = node.graph.call_function(_aten.ones_like.default, (x,))
            mask = node.graph.call_function(_DROPOUT, (ones, *settings))
        ones.meta = mask.meta = dict(node.meta)
        node.target, node.args = _aten.mul.Tensor, (x, mask)


def _traced(part: _Part, given: Sequence[fx.Node], *, batched: bool) -> fx.Graph:
    """Return the operators of the derivative, as a graph of what is `given`."""

    def derived(*values: Any) -> list[Tensor]:
        with torch.enable_grad():
            known = dict(zip(given, values, strict=False))
            for root in part.roots:
                known[root] = known[root].detach().requires_grad_()
            for node in part.nodes:
                args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = FORWARD.get(node.target, node.target)(*args, **kwargs)
                _require_derivative(node, known)
            ends = [known[one] for one in part.results]
            incoming = values[len(part.roots) + len(part.others) :]
            pairs = [pair for pair in zip(ends, incoming, strict=True) if pair[0].requires_grad]
            starts = [known[one] for one in part.sources]
            gradients: tuple[Tensor, ...] = torch.autograd.grad(
                [end for end, _ in pairs],
                starts,
                [gradient for _, gradient in pairs],
                allow_unused=True,
                is_grads_batched=batched,
                materialize_grads=True,
            ) if pairs else [torch.zeros_like(one) for one in starts]
        return [*gradients]

    mode = detect_fake_mode([node.meta.get("val") for node in given])
    with mode or nullcontext(), views_of_any_strides():
        values = [_like(node.meta["val"]) for node in given]
        made = make_fx(derived, decomposition_table=_table())(*values)
        made = make_fx(functionalize(made))(*values)
    made.graph.eliminate_dead_code()
    graph: fx.Graph = made.graph
    return graph


def _like(value: object) -> object:
    """Return what stands for a value while operators are recorded."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def _require_derivative(node: fx.Node, known: Mapping[fx.Node, object]) -> None:
    pass


@cache
def _table() -> Mapping[Any, Callable[..., object]]:
    """Return what operators become after they are differentiated, once or again."""
    return {**torch.export.default_decompositions().materialize(), **BACKWARD}
