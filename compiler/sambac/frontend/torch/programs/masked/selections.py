"""What a mask selects, computed at all places, where it goes back to them or is summed up.

    y[m] = f(x[m], z[m])   ->  y = where(m, f(x', z'), y)
    f(x[m]).sum()          ->  where(m, f(x'), 0).sum()
    f(x[m]).mean()         ->  where(m, f(x'), 0).sum() / m.sum()

for an `f` of one element at a time. The size of x[m] depends on values, which a program cannot
have. x' is x where the mask is true, and elsewhere the first element that is selected: `f` and its
slope are infinite nowhere where they are not so of what is selected. If none is, x' is 1, and what
`f` reads besides has no gradient. What is read otherwise stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from sambac.frontend.torch.programs.writes import noted

from .element_losses import AVERAGE, LOSSES, is_of_elements, is_reduced, reduction_of
from .masks import name_masks, number_places
from .nested import select_at_once
from .putting import Put, putter
from .rows import ALIKE
from .selected_rows import keep_rows
from .spreads import spread_out

_aten = torch.ops.aten
_INDEX, _PUT, _SIZE = _aten.index.Tensor, _aten.index_put.default, _aten.sym_size.int
_SUM, _MEAN = _aten.sum.default, _aten.mean.default
_METADATA = _aten._assert_tensor_metadata.default
_CHECKS = (_aten._assert_scalar.default, _aten.sym_constrain_range_for_size.default, _METADATA)
_SUMMED = (torch.float32, torch.float64)


def _masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]  # torch's
    return x[mask]


SELECTIONS: Mapping[Callable[..., object], Callable[..., torch.Tensor]] = {
    _aten.masked_select.default: _masked,
}
"""What operators become that select by masks in other words."""


def keep_sizes(program: ExportedProgram, *, training: bool) -> None:
    """Rewrite selections by masks in `program`, which is functional, that can keep all places.

    What is for `training` has the gradients of what is selected alone.
    """
    graph = program.graph_module.graph
    if training:
        _take_apart(graph)
        name_masks(graph)
    if graph.find_nodes(op="call_function", target=_INDEX):
        _keep_sizes(graph, training=training)
    if training and number_places(graph):
        _keep_sizes(graph, training=True)


def _keep_sizes(graph: fx.Graph, *, training: bool) -> None:
    _leave_out_broadcasts(graph)
    _take_apart(graph)
    rounds = 1
    if training:
        rounds += select_at_once(graph)
        spread_out(graph)
    for _ in range(rounds):  # masks of what is put back become such of known sizes
        for masks in _masks(graph):
            found = _selection(graph, masks)
            if found is not None:
                _rewrite(graph, found, training=training)
            elif training:
                keep_rows(graph, masks)


def _leave_out_broadcasts(graph: fx.Graph) -> None:
    """Let readers of what is broadcast to its own shape, as losses do, read that."""
    for node in graph.find_nodes(op="call_function", target=_aten.broadcast_tensors.default):
        for part in tuple(node.users):
            source = node.args[0][part.args[1]]
            if str(part.meta["val"].shape) == str(source.meta["val"].shape):
                part.replace_all_uses_with(source)
                graph.erase_node(part)
        if not node.users:
            graph.erase_node(node)


def _take_apart(graph: fx.Graph) -> None:
    """Let readers of one part of what is selected read it from the whole."""
    for node in graph.find_nodes(op="call_function", target=_aten.unbind.int):
        if all(isinstance(size, int) for size in node.args[0].meta["val"].shape):
            continue
        for part in tuple(node.users):
            axis = node.args[1] if len(node.args) > 1 else 0
            with graph.inserting_before(part):
                chosen = graph.call_function(_aten.select.int, (node.args[0], axis, part.args[1]))
            chosen.meta = noted(part, val=part.meta["val"])
            part.replace_all_uses_with(chosen)
            graph.erase_node(part)
        graph.erase_node(node)


def _masks(graph: fx.Graph) -> list[tuple[fx.Node, ...]]:
    """Return what may be masks, those that are the same operator of the same together."""
    known: dict[str, fx.Node] = {}
    first: dict[fx.Node, fx.Node] = {}
    alike: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        key, operator = node.name, node.target
        if isinstance(operator, OpOverload) and not _draws(operator):
            given = fx.map_arg((node.args, node.kwargs), lambda item: first.get(item, item))
            key = f"{operator} {given}"
        first[node] = known.setdefault(key, node)
        if _is_mask(node):
            alike.setdefault(first[node], []).append(node)
    return [tuple(group) for group in alike.values()]


def _draws(operator: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in operator.tags


def _is_pointwise(operator: OpOverload) -> bool:
    return torch.Tag.pointwise in operator.tags and not _draws(operator)


@dataclass(frozen=True)
class _Selection:
    """What is computed of what equal `masks` select: operators on elements, and what ends them."""

    masks: Sequence[fx.Node]
    members: tuple[fx.Node, ...]
    ends: tuple[fx.Node, ...]
    checks: tuple[fx.Node, ...]


def _is_mask(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.dim() > 0


def _selection(graph: fx.Graph, masks: Sequence[fx.Node]) -> _Selection | None:
    """Return what is computed of what equal `masks` select, None if it is read otherwise."""
    members: dict[fx.Node, None] = {}
    ends: list[fx.Node] = []
    checks: dict[fx.Node, None] = {}
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if _selects(node, masks) or _is_of_places(node, members):
            members[node] = None
        elif not any(item in members or item in checks for item in inputs):
            continue
        elif _is_end(node, masks, members):
            ends.append(node)
        elif node.target is _METADATA or _counts(node) or all(item in checks for item in inputs):
            checks[node] = None
        else:
            return None
    is_read = any(not node.users and node.target not in _CHECKS for node in checks)
    if not ends or is_read or not all(map(_is_fixed, members)):
        return None
    return _Selection(masks, tuple(members), tuple(ends), tuple(checks))


def _selects(node: fx.Node, masks: Sequence[fx.Node]) -> bool:
    return node.target is _INDEX and _are_one_of(node.args[1], masks)


def _are_one_of(indices: object, masks: Sequence[fx.Node]) -> bool:
    """Tell whether the `indices` of an operator are one mask, which is among `masks`."""
    return isinstance(indices, list) and len(indices) == 1 and indices[0] in masks


def _counts(node: fx.Node) -> bool:
    """Tell whether `node` is the size of the axis along which elements are selected."""
    return node.target is _SIZE and bool(node.args[1] == 0)


def _is_fixed(node: fx.Node) -> bool:
    """Tell whether the sizes of all axes but the first are known."""
    return all(isinstance(size, int) for size in node.meta["val"].shape[1:])


def _is_end(node: fx.Node, masks: Sequence[fx.Node], members: dict[fx.Node, None]) -> bool:
    """Tell whether `node` puts back what is selected, or sums it up."""
    inputs = node.all_input_nodes
    if node.target is _PUT and len(node.args) == len(("x", "indices", "values")):
        x, indices, values = node.args
        return (
            _are_one_of(indices, masks)
            and isinstance(x, fx.Node)
            and isinstance(values, fx.Node)
            and [item for item in inputs if item in members] == [values]
            and _rank(values) == 1 + _rank(x) - _rank(masks[0])
        )
    return (
        (is_reduced(node) or (node.target in (_SUM, _MEAN) and not node.kwargs))
        and all(item.meta["val"].dtype in _SUMMED for item in inputs)
        and _is_along(inputs, members)
    )


def _is_of_places(node: fx.Node, members: dict[fx.Node, None]) -> bool:
    """Tell whether `node` computes each element of its result from those at the same place."""
    if not any(item in members for item in node.all_input_nodes):
        return False
    operator, values = node.target, [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    if not isinstance(operator, OpOverload) or not (
        operator in ALIKE or is_of_elements(node) or _is_pointwise(operator)
    ):
        return False
    if not all(isinstance(value, torch.Tensor) for value in values):
        return False
    return _is_along(node.all_input_nodes, members)


def _is_along(inputs: Sequence[fx.Node], members: dict[fx.Node, None]) -> bool:
    """Tell whether `inputs` that are no `members` are broadcast along what is selected."""
    ranks = {_rank(item) for item in inputs if item in members}
    return len(ranks) == 1 and all(item in members or _rank(item) < min(ranks) for item in inputs)


def _tail(node: fx.Node, mask: fx.Node) -> list[int]:
    """Return the sizes of the axes of `node` that are behind those of `mask`."""
    return [*node.meta["val"].shape[_rank(mask) :]]


def _rank(node: fx.Node) -> int:
    value: torch.Tensor = node.meta["val"]
    return value.dim()


def _rewrite(graph: fx.Graph, found: _Selection, *, training: bool) -> None:
    """Put operators of all places where those of what is selected are."""
    mask = found.masks[0]
    for check in reversed(found.checks):
        graph.erase_node(check)
    whole: dict[fx.Node, fx.Node] = {}
    first: list[fx.Node] = []
    for node in (*found.members, *found.ends):
        put = putter(graph, node)
        if _selects(node, found.masks):
            whole[node] = _filled(put, node, mask, first)
            continue
        if training and first and node.target is not _PUT:
            others = [item for item in node.all_input_nodes if item not in found.members]
            whole.update((n, _only_if(put, first[1], n)) for n in others if n not in whole)
        if node in found.members:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: whole.get(n, n))
            whole[node] = put(node.target, *args, **kwargs)
        else:
            node.replace_all_uses_with(_end(put, node, mask, whole))
    for node in (*reversed(found.ends), *reversed(found.members)):
        graph.erase_node(node)


def _filled(put: Put, node: fx.Node, mask: fx.Node, first: list[fx.Node]) -> fx.Node:
    """Return what `node` selects from, with its first selected element where it selects none."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if any(isinstance(size, int) and size == 0 for size in source.meta["val"].shape):
        return source
    is_open = not all(isinstance(size, int) for size in mask.meta["val"].shape)
    if not first:
        flat = put(_aten.reshape.default, mask, [-1])
        number = put(_aten._to_copy.default, flat, dtype=torch.int32)
        number = _with_one_more(put, number, 0) if is_open else number
        first += [put(_aten.argmax.default, number, 0, True), put(_aten.any.default, mask)]
    place, is_there = first
    tail = _tail(source, mask)
    rows = put(_aten.reshape.default, put(_aten.detach.default, source), [-1, *tail])
    rows = _with_one_more(put, rows, 1) if is_open else rows
    row = put(_aten.reshape.default, put(_aten.index_select.default, rows, 0, place), tail)
    ones = put(_aten.ones_like.default, row)
    filling = put(_aten.where.self, is_there, row, ones)
    return put(_aten.where.self, _spread(put, mask, source), source, filling)


def _with_one_more(put: Put, rows: fx.Node, number: int) -> fx.Node:
    """Return `rows` and one more of `number`: where sizes are open there may be no other."""
    last = put(_aten.new_full.default, rows, [1, *rows.meta["val"].shape[1:]], number)
    return put(_aten.cat.default, [rows, last])


def _only_if(put: Put, is_there: fx.Node, item: fx.Node) -> fx.Node:
    """Return `item`, which has a gradient only where something is selected."""
    if not item.meta["val"].is_floating_point():
        return item
    return put(_aten.where.self, is_there, item, put(_aten.detach.default, item))


def _spread(put: Put, mask: fx.Node, over: fx.Node) -> fx.Node:
    """Return `mask` with axes of one element behind its own, as many as `over` has."""
    for _ in range(_rank(over) - _rank(mask)):
        mask = put(_aten.unsqueeze.default, mask, -1)
    return mask


def _end(put: Put, node: fx.Node, mask: fx.Node, whole: dict[fx.Node, fx.Node]) -> fx.Node:
    """Return what stands for `node`, which puts back what is selected, or sums it up."""
    if node.target is _PUT:
        values = whole[node.all_input_nodes[-1]]
        return put(_aten.where.self, _spread(put, mask, values), values, node.args[0])
    operator, values = node.target, whole[node.all_input_nodes[0]]
    if operator in LOSSES:
        given, reduction = reduction_of(node)
        values = put(operator, *fx.map_arg(given, lambda n: whole.get(n, n)), **node.kwargs)
        operator = _MEAN if reduction == AVERAGE else _SUM
    total = put(_SUM, put(_aten.where.ScalarOther, _spread(put, mask, values), values, 0.0))
    if operator is _SUM:
        return total
    count = put(_aten.mul.Tensor, put(_SUM, mask), prod(_tail(values, mask)))
    return put(_aten.div.Tensor, total, count)
