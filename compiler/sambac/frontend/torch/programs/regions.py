"""Regions without gradients: what `torch.no_grad` computes becomes visibly detached.

    with torch.no_grad():         region = wrap_with_set_grad_enabled(False, f, x)
        y = f(x)            ->        y = f(x)
    z = g(y)                      z = g(detach(y))
    z.detach_()                   z = detach(z)
    y = dropout(x, p, False)      y = alias(x), where something is written in place

torch.export keeps such a region as a call of a subgraph, and every later step forgets that
gradients were off in it. Here its operators move into the main graph, and what one of them computes
passes a detach before an operator with gradients reads it. `detach_` is forgotten too, and so is
that what drops nothing gives the tensor that it takes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._export.utils import _is_cia_op, _is_preservable_cia_op
from torch.export import ExportedProgram

from sambac.errors import CompileError
from sambac.frontend.torch.memory_of_nodes import (
    given_as_it_is,
    memories,
    viewed_unsaid,
    written_by,
    written_in_lists,
)
from sambac.frontend.torch.programs.names import copied_graph

from .names import renamed
from .writes import (
    DETACH,
    GRADIENTS,
    active_nodes,
    has_gradients,
    noted,
    require_plain_writes,
    written_with_gradients,
)

_REGION = torch.ops.higher_order.wrap_with_set_grad_enabled
_DETACH_IN_PLACE = torch.ops.aten.detach_.default
_BROADCAST = torch.ops.aten.broadcast_tensors.default
_NATIVE_DROPOUT = torch.ops.aten.native_dropout.default
_CHUNK = torch.ops.aten.unsafe_chunk.default


def without_regions(program: ExportedProgram, *, training: bool) -> ExportedProgram:
    """Return `program` with the operators of its regions outside of them; itself without any.

    The graph of the argument is not changed. Raises `CompileError` where something is changed in
    place that another tensor is of which no schema says so, and in `training` where gradients would
    flow by it in other ways than they do in PyTorch.
    """
    if not _is_special(program.graph):
        return program
    module = copied_graph(program)
    parameters = program.graph_signature.inputs_to_parameters
    _unwrap(module, set(parameters) if training else set())
    return program._update(module, renamed(program.graph_signature, module.graph))


def _unwrap(module: fx.GraphModule, sources: set[str]) -> None:
    """Do so in one graph; `sources` names the inputs that may have gradients."""
    _inline(module, gradients=True)
    _share_memory(module.graph)
    _detach_in_place(module.graph, sources)
    require_plain_writes(module.graph, active_nodes(module.graph, sources))
    _detach_sources(module.graph)
    _detach_results(module.graph)
    module.recompile()


def _is_special(graph: fx.Graph) -> bool:
    """Tell whether `graph` has regions, or writes something in place."""
    return any(_is_region(node) or written_by(node) for node in graph.nodes)


def _is_region(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is _REGION


def _inline(module: fx.GraphModule, *, gradients: bool) -> None:
    """Replace the regions of `module` by their operators, and note on each whether it is in one."""
    for node in tuple(module.graph.nodes):
        if _is_region(node):
            _splice(module, node)
        elif node.op == "call_function":
            node.meta.setdefault(GRADIENTS, gradients)


def _splice(module: fx.GraphModule, node: fx.Node) -> None:
    enabled, reference, *arguments = node.args
    assert isinstance(reference, fx.Node)
    _inline(body_of(module, reference), gradients=bool(enabled))
    with module.graph.inserting_before(node):
        results = inlined(module, reference, arguments)
    taken_apart(module, node, reference, results)


def body_of(module: fx.GraphModule, reference: fx.Node) -> fx.GraphModule:
    """Return the graph that `reference`, a node of `module`, refers to."""
    body = module.get_submodule(str(reference.target))
    assert isinstance(body, fx.GraphModule)
    return body


def inlined(module: fx.GraphModule, reference: fx.Node, arguments: Sequence[Any]) -> Sequence[Any]:
    """Add the operators of what `reference` refers to, of these arguments; return its results."""
    body = body_of(module, reference)
    copies = dict(zip(body.graph.find_nodes(op="placeholder"), arguments, strict=True))
    for inner in body.graph.nodes:
        if inner.op not in ("placeholder", "output"):
            copies[inner] = module.graph.node_copy(inner, copies.__getitem__)
            if inner.op == "get_attr":
                _adopt(module, body, copies[inner])
    results = fx.map_arg(body.graph.output_node().args[0], copies.__getitem__)
    assert isinstance(results, (list, tuple))
    return results


def taken_apart(
    module: fx.GraphModule, node: fx.Node, reference: fx.Node, results: Sequence[fx.Node]
) -> None:
    """Let `results` be read in place of those of `node`, a call of what `reference` refers to."""
    for item in tuple(node.users):
        item.replace_all_uses_with(results[int(str(item.args[1]))])
        module.graph.erase_node(item)
    module.graph.erase_node(node)
    if not reference.users:
        module.graph.erase_node(reference)
        module.delete_submodule(str(reference.target))


def _adopt(module: fx.GraphModule, region: fx.GraphModule, reference: fx.Node) -> None:
    """Give `module` what `reference`, a node copied from `region`, refers to."""
    target = str(reference.target)
    name = f"{target}_{reference.name}"
    setattr(module, name, getattr(region, target))
    reference.target = name


def _share_memory(graph: fx.Graph) -> None:
    """Let what gives the tensor that it takes be this one, as in PyTorch, where it is written.

    Dropout that drops nothing does, and a sum of one term. Their schemas say nothing of it. Raises
    `CompileError` for what gives a view and stays one operator: of values alone, nobody could tell
    what else has changed.
    """
    for node in tuple(graph.nodes):
        if (source := given_as_it_is(node)) is not None:
            _be(node, source)
        elif node.target is _NATIVE_DROPOUT:
            _take_copy(graph, node)
    written: set[int] = set()
    for node in reversed(graph.nodes):
        source = None if written.isdisjoint(memories(node)) else viewed_unsaid(node)
        if source is not None:
            _be(node, source)
        written.update(*map(memories, (*written_by(node), *written_in_lists(node))))


def _take_copy(graph: fx.Graph, node: fx.Node) -> None:
    """Let what drops nothing give a tensor of its own, as in PyTorch, not what it takes."""
    source = node.all_input_nodes[0]
    with graph.inserting_before(node):
        copy = graph.call_function(torch.ops.aten.clone.default, (source,))
    copy.meta = noted(source, **{GRADIENTS: has_gradients(node)})
    node.replace_input_with(source, copy)


def _be(node: fx.Node, source: fx.Node) -> None:
    """Let `node` be another name of `source`. Raises `CompileError` where it is a view."""
    if _geometry(source) == _geometry(node):
        node.target, node.args, node.kwargs = torch.ops.aten.alias.default, (source,), {}
        node.meta["val"] = source.meta["val"]
    elif not _is_taken_apart(node.target):
        raise CompileError(
            f"the module changes what {node.target} gives in place, or what it takes, which is "
            "one memory to PyTorch; change a clone() of it"
        )


def _is_taken_apart(target: Any) -> bool:
    """Tell whether PyTorch makes views, which say what they are, of an operator."""
    if target in (_BROADCAST, _CHUNK):
        return target is _BROADCAST
    return bool(_is_cia_op(target)) and not _is_preservable_cia_op(target)


def _geometry(node: fx.Node) -> tuple[object, ...]:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):  # several
        return (node,)
    return value.dtype, value.size(), value.stride(), value.storage_offset()


def _detach_in_place(graph: fx.Graph, sources: set[str]) -> None:
    """Let what is detached in place be a new tensor, if it has gradients, or else what it is."""
    for node in graph.find_nodes(op="call_function", target=_DETACH_IN_PLACE):
        (source,) = node.all_input_nodes
        if source in active_nodes(graph, sources, until=node):
            node.target = DETACH
            source.replace_all_uses_with(node, partial(operator.lt, node))  # later ones
        else:
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _detach_sources(graph: fx.Graph) -> None:
    """Detach what regions write into other tensors: those are read outside by their own names."""
    for node in tuple(graph.nodes):
        if has_gradients(node) or not written_by(node):
            continue
        for source in node.all_input_nodes[1:]:
            if _is_differentiable(source):
                node.replace_input_with(source, _detached(graph, source, before=node))


def _detach_results(graph: fx.Graph) -> None:
    written = written_with_gradients(graph)
    for node in tuple(graph.nodes):
        if has_gradients(node) or not _is_differentiable(node):
            continue
        readers = [user for user in node.users if has_gradients(user)]
        if readers:
            detached = _detached(graph, node, before=node.next)
            if node in written:  # it must not be detached once more after it is written
                detached = _cloned(graph, detached)
                readers = [user for user in node.users if user is not detached.args[0]]
            for reader in readers:
                reader.replace_input_with(node, detached)


def _is_differentiable(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _detached(graph: fx.Graph, source: fx.Node, *, before: fx.Node) -> fx.Node:
    with graph.inserting_before(before):
        node = graph.call_function(DETACH, (source,))
    node.meta = noted(source, **{GRADIENTS: True})
    return node


def _cloned(graph: fx.Graph, source: fx.Node) -> fx.Node:
    with graph.inserting_after(source):
        node = graph.call_function(torch.ops.aten.clone.default, (source,))
    node.meta = noted(source)
    return node
