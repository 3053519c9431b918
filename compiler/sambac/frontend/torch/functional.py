"""A recorded program without writes to tensors: new values of buffers are results.

torch.export turns one into the other by recording it once more, as it decomposes operators. Where
it is known what would come of that, the program is copied so: a third of the time that a small
model takes to compile would go into recording it.

    flatten(x, 1), reshape(x, s)   ->  view(x, s)               x without gaps
    dropout(x, p, False)           ->  clone(x)
    dropout(x, p, True)            ->  native_dropout(x, p, True)[0]
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch._export.verifier import SpecViolationError
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError

from .capture import quiet
from .draws import UNIFORM
from .errors import refusal
from .names import renamed
from .pairs import on_parts
from .regions import without_regions
from .shortcuts import has_known_type
from .states import is_complex

_INSTANCE_NORM = torch.ops.aten.instance_norm.default
_RESHAPE = torch.ops.aten.reshape.default
_VIEWS = (_RESHAPE, torch.ops.aten.flatten.using_ints, torch.ops.aten.unflatten.int)
_VIEW = torch.ops.aten.view.default
_STRIDED = (_VIEW, torch.ops.aten._unsafe_view.default)
_DROPOUT = torch.ops.aten.dropout.default
_NATIVE_DROPOUT = torch.ops.aten.native_dropout.default
_CLONE = torch.ops.aten.clone.default
_LIFTED = torch.ops.aten.lift_fresh_copy.default
"""What takes a constant of `forward`, and is a copy where nothing is written."""

Table = dict[Callable[..., object], Callable[..., object]]
"""What operators are decomposed into."""

_REFUSALS = (
    *(RuntimeError, TypeError, ValueError, KeyError, NotImplementedError),
    SpecViolationError,
)


def functional(program: ExportedProgram, name: str, *, training: bool) -> ExportedProgram:
    """Return `program` without writes to tensors: new values of buffers are results.

    Operators stay what they are, but for those that write without saying so. What is without
    gradients in a program that is for `training` is detached. `name` is what messages call the
    program.
    """
    table = _table(program)
    if _is_known(program, table):
        return _copied(program)
    inlined = without_regions(program, training=training)
    if inlined is not program:
        program, table = inlined, _table(inlined)
    with quiet(), views_of_any_strides():
        try:
            result: ExportedProgram = program.run_decompositions(table)
        except AssertionError as error:
            shared = _shared_buffers(program)
            if not shared:
                raise refusal(name, error) from error
            raise CompileError(
                f"{name} writes the buffers {listed(shared, separator=', ')}, which have other "
                "names too; let only one module hold what has them"
            ) from error
        except _REFUSALS as error:
            raise refusal(name, error) from error
    return result


@contextmanager
def views_of_any_strides() -> Iterator[None]:
    """Let a `view` that the strides of its operand do not allow be a copy while recording.

    What lies in memory how is up to an operator's kernel: attention recorded by its fused kernel
    gives heads beside each other, recorded without it one head after the other.
    """
    before = {op: op_implementations_dict[op] for op in _STRIDED}
    copies: list[OpOverload] = []

    def view(mode: FakeTensorMode, op: OpOverload, x: torch.Tensor, *shape: Any) -> object:
        try:
            return before[op](mode, op, x, *shape)
        except (ValueError, RuntimeError):
            copies.append(op)
            return before[op](mode, op, x, *shape, allow_copy=True)

    op_implementations_dict.update(dict.fromkeys(_STRIDED, view))
    try:
        yield
    finally:
        op_implementations_dict.update(before)
        if copies:
            # Fake tensors keep what an operator gave, and a module's own views stay refused.
            FakeTensorMode.cache_clear()


def _table(program: ExportedProgram) -> Table:
    """Return what operators of `program` are decomposed into."""
    table: dict[Callable[..., object], Callable[..., object]] = {
        **UNIFORM,
        **(on_parts(found) if (found := _complex_operators(program)) else {}),
        torch.ops.aten.std_mean.correction: std_mean,
    }
    if _keeps_statistics(program):
        table[_INSTANCE_NORM] = torch.export.default_decompositions()[_INSTANCE_NORM]
    return table


def _is_known(program: ExportedProgram, table: Table) -> bool:
    """Tell whether recording `program` once more by `table` would give what `_copied` does."""
    results = set(program.graph.output_node().all_input_nodes)
    return all(_is_known_node(node, results, table) for node in program.graph.nodes)


def _is_known_node(node: fx.Node, results: set[fx.Node], table: Table) -> bool:
    if node.op == "output":
        return True
    if not has_known_type(node.meta.get("val")):
        return False
    if node.op == "placeholder":
        return node not in results
    if node.op != "call_function" or not node.users:
        return False
    if node.target in _VIEWS:
        return _is_view(node)
    if node.target is _DROPOUT:
        return len(node.args) == 3 and (not node.args[2] or 0 < float(str(node.args[1])) < 1)
    return node.target is operator.getitem or (
        isinstance(node.target, OpOverload) and node.target not in table and _is_kept(node.target)
    )


def _is_view(node: fx.Node) -> bool:
    """Tell whether `node` gives memory without gaps another shape, in all cases by an operator."""
    result, operand = node.meta["val"], node.all_input_nodes[0].meta["val"]
    same = result.dim() == operand.dim() and node.target is not _RESHAPE
    return not same and not node.kwargs and bool(operand.is_contiguous()) and operand.numel() > 0


@cache
def _is_kept(target: OpOverload) -> bool:
    """Tell whether PyTorch lets an operator be where nothing is written: a pure one, or a view.

    Rules in Python say what some become where gradients may be taken.
    """
    if target.namespace != "aten" or target._schema.is_mutable or target is _LIFTED:
        return False
    if not {DispatchKey.Meta}.issuperset(target.py_kernels):
        return False
    return not _is_cia_op(target) or _is_preservable_cia_op(target)


def _copied(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of `program`, which is known, spelled and named as if it were recorded anew."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in program.graph.nodes:
        if node.op == "call_function":
            copies[node] = _spelled(graph, node, copies)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].name, copies[node].target = node.name, node.target
    module = fx.GraphModule(program.graph_module, graph)
    module.meta.update(program.graph_module.meta)
    return program._update(module, renamed(program.graph_signature, graph))


def _spelled(graph: fx.Graph, node: fx.Node, copies: Mapping[fx.Node, fx.Node]) -> fx.Node:
    given: Any = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
    (args, kwargs), target, value = given, node.target, node.meta["val"]
    if target in _VIEWS:
        target, args = _VIEW, (args[0], [*(args[1] if target is _RESHAPE else value.shape)])
    elif target is _DROPOUT and not args[2]:
        target, args = _CLONE, args[:1]
    elif target is _DROPOUT:
        pair = _called(graph, _NATIVE_DROPOUT, args)
        pair.meta = {**node.meta, "val": (value, value.to(torch.bool))}
        target, args = operator.getitem, (pair, 0)
    made = _called(graph, target, args, kwargs)
    made.meta = dict(node.meta)
    return made


def _called(
    graph: fx.Graph, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> fx.Node:
    """Add a call of `target`, named as a recording does."""
    packet = target.overloadpacket.__name__ if isinstance(target, OpOverload) else None
    name = None if packet is None else graph._target_to_str(packet)
    return graph.create_node("call_function", target, args, kwargs, name)


def _complex_operators(program: ExportedProgram) -> set[object]:
    """Return the operators in `program` that compute with complex numbers."""
    found: set[object] = set()
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            values = [item.meta.get("val") for item in (node, *node.all_input_nodes)]
            if any(map(is_complex, pytree.tree_leaves((values, node.args, node.kwargs)))):
                found.add(node.target)
    return found


def _shared_buffers(program: ExportedProgram) -> list[str]:
    """Return the names of buffers that are the same tensor as one before."""
    first: dict[int, str] = {}
    buffers = dict(program.named_buffers())
    return [name for name in buffers if first.setdefault(id(buffers[name]), name) != name]


def _keeps_statistics(program: ExportedProgram) -> bool:
    """Tell whether an InstanceNorm has running statistics, its fourth and fifth arguments."""
    nodes = program.graph.find_nodes(op="call_function", target=_INSTANCE_NORM)
    return any(node.args[3] is not None for node in nodes)


def std_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The standard deviation over the axes `dim`, all of them if None, and the mean.

    The exporter cannot make one type of the types of an operator with two results.
    """
    axes = list(dim or range(x.dim()))
    deviation = torch.std(x, axes, correction=correction, keepdim=keepdim)
    return deviation, torch.mean(x, axes, keepdim=keepdim)
