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
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from sambac.errors import CompileError
from sambac.frontend.torch.errors import refusal
from sambac.frontend.torch.own_operators import (
    OWN,
    VARIABLE,
    derivatives_of,
    gradient_shape,
    parts_of,
)
from sambac.frontend.torch.programs.names import renamed
from sambac.frontend.torch.programs.views import views_of_any_strides

from .again import arguments, differentiated, own_results, require_plain, run_again, run_backward
from .formulas import BACKWARD, known_size

_aten = torch.ops.aten
_ALIAS, _DETACH = _aten.alias.default, _aten.detach.default
_DROPOUTS = frozenset({_aten.dropout.default, _aten.native_dropout.default})
_DRAWS = torch.Tag.nondeterministic_seeded
_NOISE = frozenset({
    *(_aten.rand_like, _aten.randn_like, _aten.randint_like, _aten.bernoulli, _aten.exponential),
    *(_aten.uniform, _aten.normal, _aten.geometric, _aten.cauchy, _aten.log_normal),
    *(_aten.poisson, _aten.normal_functional),
})  # fmt: skip
"""Operators whose results depend on nothing that could be differentiated."""


def without_derivatives(program: ExportedProgram, name: str) -> ExportedProgram:
    """Return `program`, which is functional, with the formulas of derivatives that it takes.

    `name` is what messages call it. Raises `CompileError` for what cannot be differentiated.
    """
    module = program.graph_module
    taken = derivatives_of(module)
    if len(taken) < sum(len(derivatives_of(part)) for part in parts_of(program)):
        raise CompileError(
            f"{name} takes derivatives inside torch.cond, scan or map, which cannot be "
            "recorded; take them outside of it"
        )
    variables = program.graph.find_nodes(op="call_function", target=VARIABLE)
    if not taken and not variables:
        return program
    _spell_dropouts(program.graph)
    for node in taken:
        try:
            _write_out(node)
        except (RuntimeError, TypeError, ValueError) as error:  # of PyTorch's formulas
            raise refusal(name, error) from error
    for node in variables:
        node.replace_all_uses_with(node.args[0])
    module.graph.eliminate_dead_code()
    module.recompile()
    return program._update(module, renamed(program.graph_signature, module.graph))


@dataclass(frozen=True)
class _Stretch:
    """What lies between `sources` and `results`: `nodes` in their order, which read `others` too.

    Sources that depend on others of them are among the nodes; `roots` are the rest. Results of
    functions with a backward method of their own are among the others, too.
    """

    results: Sequence[fx.Node]
    sources: Sequence[fx.Node]
    roots: Sequence[fx.Node]
    nodes: Sequence[fx.Node]
    others: Sequence[fx.Node]

    @property
    def tensors(self) -> list[fx.Node]:
        """Those of `nodes` that are tensors, and computed before."""
        return [node for node in self.nodes if isinstance(node.meta.get("val"), Tensor)]

    @classmethod
    def between(cls, results: Sequence[fx.Node], sources: Sequence[fx.Node]) -> _Stretch:
        """Return what lies between them."""
        graph = results[0].graph
        depend = set(sources)
        roots = []
        for node in graph.nodes:
            begins = _ends_gradients(node) or depend.isdisjoint(differentiated(node))
            if not begins:
                depend.add(node)
            elif node in depend:
                roots.append(node)
        wanted = set(results)
        for node in reversed(graph.nodes):
            if node in wanted:
                wanted.update(differentiated(node))
        nodes = [one for one in graph.nodes if one in depend & wanted and one not in roots]
        own = [node for node in nodes if node.target is OWN]
        run = {*nodes, *(one for node in own for one in run_backward(node))}
        read = {one for node in run for one in node.all_input_nodes}.union(results)
        made = [item for node in own for item in own_results(node)]
        return cls(results, sources, roots, nodes, [*read.difference(nodes, roots), *made])


def _ends_gradients(node: fx.Node) -> bool:
    """Tell whether what a node gives has no gradient, though it reads what may have one."""
    if node.target is operator.getitem:
        return _ends_gradients(node.all_input_nodes[0])
    packet = getattr(node.target, "overloadpacket", None)
    return node.target is _DETACH or packet in _NOISE or _drops(node)


def _drops(node: fx.Node) -> bool:
    return node.target in _DROPOUTS and bool(node.args[2])


def _write_out(taken: fx.Node) -> None:
    """Put the operators of a derivative in the place of it."""
    results, incoming, sources, batched = arguments(taken)
    part = _Stretch.between(results, sources)
    require_plain(part.nodes)
    given = (*part.roots, *part.others, *incoming)
    traced = _traced(part, given, batched=batched)
    _require_no_draws(traced)
    stands = dict(zip(traced.find_nodes(op="placeholder"), given, strict=True))
    graph = taken.graph
    (made,) = arguments(traced.output_node())
    for node, before in zip(made[len(sources) :], part.tensors, strict=True):
        stands.setdefault(node, before)
    with graph.inserting_before(taken):
        for node in traced.nodes:
            if node.op == "call_function" and node not in stands:
                stands[node] = graph.node_copy(node, stands.__getitem__)
                stands[node].meta = {**taken.meta, "val": node.meta["val"]}
    for user in [*taken.users]:
        user.replace_all_uses_with(stands[made[arguments(user)[1]]])
        graph.erase_node(user)
    graph.erase_node(taken)


def _require_no_draws(traced: fx.Graph) -> None:
    """Raise `CompileError` for random numbers, which would be others than those of the results."""
    for node in traced.nodes:
        if isinstance(node.target, OpOverload) and _DRAWS in node.target.tags:
            raise CompileError(
                f"forward takes the derivative of what draws random numbers ({node.target}); draw "
                "them apart, as by dropout of ones, and multiply with them"
            )


def _spell_dropouts(graph: fx.Graph) -> None:
    """Let dropouts be products with masks, which are the same ones forward and backward."""
    for node in filter(_drops, tuple(graph.nodes)):
        x, *settings = arguments(node)
        with graph.inserting_before(node):
            ones = graph.call_function(_aten.ones_like.default, (x,))
        node.args = (ones, *settings)
        ones.meta = {**node.meta, "val": x.meta["val"]}
        if node.target is _aten.native_dropout.default:
            masks = [user for user in node.users if user.args[1] == 0]
        else:
            masks = [node]
        for mask in masks:
            with graph.inserting_after(mask):
                product = graph.call_function(_aten.mul.Tensor, (x, mask))
            product.meta = dict(mask.meta)
            mask.replace_all_uses_with(product, delete_user_cb=partial(operator.ne, product))


def _traced(part: _Stretch, given: Sequence[fx.Node], *, batched: bool) -> fx.Graph:
    """Return the operators of the derivative, as a graph of what is `given`.

    Behind the gradients it returns what has been computed before, the tensors of `part`.
    """

    def derived(*values: Any) -> list[Tensor]:
        with torch.enable_grad():
            known = dict(zip(given, values, strict=False))
            known.update({root: known[root].detach().requires_grad_() for root in part.roots})
            run_again(part.nodes, known)
        incoming = values[len(part.roots) + len(part.others) :]
        ends = [known[one] for one in part.results]
        pairs = [pair for pair in zip(ends, incoming, strict=True) if pair[0].requires_grad]
        starts = [known[one] for one in part.sources]
        computed = [known[node] for node in part.tensors]
        zeros = [one.new_zeros(gradient_shape(one, incoming, batched)) for one in starts]
        if not pairs:
            return [*zeros, *computed]
        gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
            [end for end, _ in pairs],
            starts,
            [gradient for _, gradient in pairs],
            is_grads_batched=batched,
            allow_unused=True,
        )
        found = [zero if one is None else one for one, zero in zip(gradients, zeros, strict=True)]
        return [*found, *computed]

    mode = detect_fake_mode([node.meta.get("val") for node in given])
    with mode or nullcontext(), views_of_any_strides():
        values = [_like(node.meta["val"]) for node in given]
        free = [size for value in values for size in _open_sizes(value)]
        made = make_fx(derived, decomposition_table=_table())(*values)
        made.graph.eliminate_dead_code()
        made = make_fx(functionalize(made))(*values)
    if len([size for value in values for size in _open_sizes(value)]) < len(free):
        raise CompileError(
            "forward takes a derivative that fixes sizes that dynamic_shapes leaves open; compile "
            "it with fixed sizes"
        )
    graph: fx.Graph = made.graph
    for node in graph.find_nodes(op="call_function", target=_ALIAS):
        node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()
    return graph


def _open_sizes(value: object) -> list[Any]:
    """Return the sizes of a tensor that are not known."""
    sizes: Any = value.shape if isinstance(value, Tensor) else ()
    return [size for size in sizes if known_size(size) is None]


def _like(value: object) -> object:
    """Return what stands for a value while operators are recorded."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


_WHOLE = frozenset({_aten.softplus.default, _aten.elu.default})
"""Operators whose formulas have infinities where another branch counts."""


@cache
def _table() -> Mapping[Any, Callable[..., object]]:
    """Return what operators become after they are differentiated, once or again."""
    table = {**torch.export.default_decompositions().materialize(), **BACKWARD}
    return {operator: formula for operator, formula in table.items() if operator not in _WHOLE}
