"""Random numbers of an exported program, by operators that ONNX or the host has.

Draws of yes and no, however a module writes them, become one operator while it trains.

    floor(p + rand(...))                  ->  bernoulli(ones, p)
    rand(...) < p,  rand(...) <= p        ->  bernoulli(ones, p) != 0
    rand(...) > p,  rand(...) >= p        ->  bernoulli(ones, 1 - p) != 0
    bernoulli(full(..., p))               ->  bernoulli(ones, p)

Stochastic depth (drop path) is written so. What bernoulli draws are masks that the host makes from
a seed, as those of dropout are; uniform numbers would be onnxruntime's, which nobody can repeat.

Uniform numbers that have several readers stay: rand > 0.3 and rand < 0.7 of the same numbers
depend on each other, and two draws would not.

Other draws are written with operators that ONNX has:

    uniform(x, a, b)   ->  rand_like(x) * (b - a) + a
    bernoulli(x, p)    ->  rand_like(x) < p            p a tensor; numbers in float32, as a float16
                                                       below 1 may round to 1
    normal(mean, std)  ->  randn(...) * std + mean     without gradients, as in PyTorch
    randperm(n)        ->  argsort(rand(n))

Dropouts whose rate is zero when a module is exported are left out, and the user is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from pef.wording import listed
from sambac.errors import CompileError

_aten = torch.ops.aten
_UNIFORM = (_aten.rand.default, _aten.rand_like.default)
_BELOW = (_aten.lt.Scalar, _aten.le.Scalar)
_ABOVE = (_aten.gt.Scalar, _aten.ge.Scalar)


def require_common_generator(program: ExportedProgram, name: str) -> None:
    """Raise `CompileError` if the module called `name` draws from a generator that it is given."""
    for node, operator in _calls(program):
        if _arguments(node, operator).get("generator") is not None:
            raise CompileError(
                f"{name} draws from a generator of its own, at {_place(node)}, whose numbers "
                "no program has; leave generator= out, or take the numbers as an input"
            )


def leave_generators_out(program: ExportedProgram) -> None:
    """Let draws of `program` from no generator of their own be those that know of none, in place.

    rand(size, generator=None), as libraries write it, is an operator beside rand(size).
    """
    for node, operator in _calls(program):
        plain = _without_generator(operator)
        if plain is not None:
            node.target = plain
            node.kwargs = {key: value for key, value in node.kwargs.items() if key != "generator"}


def _without_generator(operator: OpOverload) -> OpOverload | None:
    """Return the operator beside `operator` that takes the same, but no generator."""
    taken = _names(operator)
    if "generator" not in taken:
        return None
    others = map(partial(getattr, operator.overloadpacket), operator.overloadpacket.overloads())
    wanted = [name for name in taken if name != "generator"]
    return next((other for other in others if _names(other) == wanted), None)


def _names(operator: OpOverload) -> list[str]:
    return [argument.name for argument in operator._schema.arguments]


def _calls(program: ExportedProgram) -> Iterator[tuple[fx.Node, OpOverload]]:
    """Yield where `program` calls operators of PyTorch, its branches too, and which."""
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
            if node.op == "call_function" and isinstance(node.target, OpOverload):
                yield node, node.target


def _arguments(node: fx.Node, operator: OpOverload) -> dict[str, object]:
    """Return what an operator is given, by the names of its arguments."""
    return {**dict(zip(_names(operator), node.args, strict=False)), **node.kwargs}


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


Table = Mapping[Callable[..., object], Callable[..., object]]


def _uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: None = None) -> Tensor:
    numbers = torch.rand_like(x)
    return numbers if (low, high) == (0, 1) else numbers * (high - low) + low


def _bernoulli(p: Tensor, *, generator: None = None) -> Tensor:
    return _bernoulli_by_tensor(p, p)


def _bernoulli_by_tensor(x: Tensor, p: Tensor, *, generator: None = None) -> Tensor:
    return (torch.rand_like(x, dtype=torch.float32) < p).to(x.dtype)


def _normal(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: None = None) -> Tensor:
    fixed = [x.detach() if isinstance(x, Tensor) else x for x in (mean, std)]
    given = [x for x in fixed if isinstance(x, Tensor)]
    like = given[0].expand_as(sum(given[1:], given[0]))
    return torch.randn_like(like) * fixed[1] + fixed[0]


def _permutation(n: int, *, dtype: torch.dtype = torch.int64, **_: object) -> Tensor:
    return torch.rand(n).argsort().to(dtype)


def _rrelu(
    x: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> Tensor:
    slope = _uniform(x.detach(), lower, upper) if training else (lower + upper) / 2
    return torch.where(x > 0, x, x * slope)


def _rrelu_in_place(x: Tensor, noise: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    return _rrelu(x, *settings), noise


UNIFORM: Table = {
    _aten.uniform.default: _uniform,
    _aten.rrelu.default: _rrelu,
    _aten.rrelu_with_noise_functional.default: _rrelu_in_place,
}
"""What uniform numbers become, and what draws some, before it is looked what is made of them."""

_OTHERS: Table = {
    _aten.bernoulli.Tensor: _bernoulli_by_tensor,
    _aten.bernoulli.default: _bernoulli,
    _aten.normal.Tensor_Tensor: _normal,
    _aten.normal.Tensor_float: _normal,
    _aten.normal.float_Tensor: _normal,
    _aten.randperm.default: _permutation,
}


def spell_draws(program: ExportedProgram) -> ExportedProgram:
    """Return `program`, which is functional, without draws that have no operator of their own."""
    if not any(node.target in _OTHERS for node in program.graph.nodes):
        return program
    spelled: ExportedProgram = program.run_decompositions(dict(_OTHERS))
    return spelled


_SHOWN = 10


def told_of(program: ExportedProgram) -> tuple[str, ...]:
    """Return a sentence if `program` has dropouts of rate 0 that would drop, else nothing.

    A mask costs a step memory and time, which nobody who turns dropout off wants to pay for.
    """
    found = [*dict.fromkeys(_idle(program))]
    if not found:
        return ()
    sentence = (
        f"The dropout of {listed(found, _SHOWN, ', ')} has the rate 0 and is left out: no run can "
        f"set its rate. Compile with a rate above 0 to do so."
    )
    return (sentence,)


def _idle(program: ExportedProgram) -> Iterator[str]:
    """Yield where dropouts are that drop nothing: the path of the module, or the node."""
    for node, operator in _calls(program):
        given = _arguments(node, operator)
        if given.get("p") == 0 and given.get("train") is True:
            yield _place(node)


def _place(node: fx.Node) -> str:
    """Return the path of the innermost module that `node` is in, its own name outside of all."""
    stack = node.meta.get("nn_module_stack")
    path = [*stack.values()][-1][0] if stack else ""
    return path or node.name
