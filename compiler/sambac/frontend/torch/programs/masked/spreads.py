"""Variances and standard deviations of rows whose number depends on values, in means and sums.

    x[m].var()  ->  d = x[m] - x[m].mean(), (d * d).mean() * n / (n - 1)     n = x[m].numel()
    x[m].std()  ->  the root of it, which has no gradient where it is 0

Of these it is known how to keep them at all places.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .putting import Put, putter

_aten = torch.ops.aten
_MEAN, _MUL = _aten.mean.dim, _aten.mul.Tensor
_ROOTS = frozenset({_aten.std.default, _aten.std.dim, _aten.std.correction})
_SPREADS = (*_ROOTS, _aten.var.default, _aten.var.dim, _aten.var.correction)
_CORRECTED: Mapping[object, Any] = {
    **dict.fromkeys((_aten.std.default, _aten.std.dim), _aten.std.correction),
    **dict.fromkeys((_aten.var.default, _aten.var.dim), _aten.var.correction),
}
"""What says how many elements are not counted, of those that say whether one is not."""
_FLOATS = (torch.float32, torch.float64)


def spread_out(graph: fx.Graph) -> None:
    """Rewrite those in `graph` along axes whose sizes depend on values."""
    for node in tuple(graph.nodes):
        if node.target in _SPREADS and _is_open(node.args[0].meta["val"]):
            _rewrite(graph, node)


def _is_open(value: torch.Tensor) -> bool:
    return value.dtype in _FLOATS and any(map(free_unbacked_symbols, value.shape))


def _rewrite(graph: fx.Graph, node: fx.Node) -> None:
    x: Any = node.args[0]
    shape = x.meta["val"].shape
    axes, correction, keep = _settings(node, len(shape))
    put = putter(graph, node)
    if not any(free_unbacked_symbols(shape[axis]) for axis in axes):
        found = put(_CORRECTED.get(node.target, node.target), x, axes, **correction, keepdim=keep)
    elif correction["correction"] in (0, 1):
        found = _spread(put, x, axes, int(correction["correction"]), keep)
        found = _root(put, found) if node.target in _ROOTS else found
    else:
        return  # fewer than it takes away is no negative number to PyTorch
    node.replace_all_uses_with(found)
    graph.erase_node(node)


def _settings(node: fx.Node, rank: int) -> tuple[list[int], dict[str, float], bool]:
    """Return the axes of a variance, how many elements are not counted, and whether axes stay."""
    assert isinstance(node.target, torch._ops.OpOverload)
    names = [item.name for item in node.target._schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    named = given.get("dim")
    dims = [named] if isinstance(named, int) else named or range(rank)
    correction = given.get("correction", given.get("unbiased", True))
    counted = 1.0 if correction is None else float(correction)
    return [dim % rank for dim in dims], {"correction": counted}, bool(given.get("keepdim"))


def _spread(put: Put, x: fx.Node, axes: list[int], correction: int, keep: bool) -> fx.Node:
    """Return the variance of `x` along `axes`."""
    away = put(_aten.sub.Tensor, x, put(_MEAN, x, axes, True))
    mean = put(_MEAN, put(_MUL, away, away), axes, keep)
    if correction == 0:
        return mean
    shape = x.meta["val"].shape
    count = put(operator.mul, _open_size(put, x, axes), _others(shape, axes))
    less = put(operator.sub, count, correction)
    return put(_aten.div.Tensor, put(_MUL, mean, count), less)


def _open_size(put: Put, x: fx.Node, axes: list[int]) -> fx.Node:
    """Return the size among those of `axes` that depends on values."""
    at = next(at for at in axes if free_unbacked_symbols(x.meta["val"].shape[at]))
    return put(_aten.sym_size.int, x, at)


def _others(shape: torch.Size, axes: list[int]) -> Any:
    """Return how many elements there are at one place of that axis."""
    return prod(shape[at] for at in axes if not free_unbacked_symbols(shape[at]))


def _root(put: Put, variance: fx.Node) -> fx.Node:
    """Return the root, whose slope is 0 where PyTorch's is, and not infinite."""
    is_zero = put(_aten.eq.Scalar, variance, 0)
    root = put(_aten.sqrt.default, put(_aten.where.ScalarSelf, is_zero, 1.0, variance))
    return put(_aten.where.ScalarSelf, is_zero, 0.0, root)
