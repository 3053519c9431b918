"""Selections of what a mask has selected, in one.

    z = f(x[m]), z[k]  ->  put(z)[put(k)]     put(s) = index_put(0, m, s)

for a mask k of rows of z. What is selected goes back to the places of m, and is selected there by a
mask of known sizes, so that it can keep them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .putting import Put, putter

_aten = torch.ops.aten
_INDEX = _aten.index.Tensor


def select_at_once(graph: fx.Graph) -> int:
    """Rewrite those in `graph` whose masks are of the first axis; return how many these are."""
    chosen: dict[str, fx.Node] = {}
    count = 0
    for node in graph.find_nodes(op="call_function", target=_INDEX):
        mask = _only_mask(node)
        if mask is None:
            continue
        outer = chosen.get(str(mask.meta["val"].shape[0]))
        if outer is not None and mask.meta["val"].dim() == 1:
            put = putter(graph, node)
            node.args = (_put_back(put, node.args[0], outer), [_put_back(put, mask, outer)])
            mask, count = _only_mask(node), count + 1
        if mask is not None and not any(map(free_unbacked_symbols, mask.meta["val"].shape)):
            chosen[str(node.meta["val"].shape[0])] = mask
    return count


def _only_mask(node: fx.Node) -> fx.Node | None:
    """Return the mask by which `node` selects along the first axes, if it is the only index."""
    indices: Any = node.args[1]
    is_one = isinstance(indices, (list, tuple)) and len(indices) == 1
    value = indices[0].meta["val"] if is_one else None
    return indices[0] if value is not None and value.dtype is torch.bool else None


def _put_back(put: Put, rows: Any, mask: fx.Node) -> fx.Node:
    """Return `rows`, which `mask` has selected, at their places, among zeros."""
    sizes = [*mask.meta["val"].shape, *rows.meta["val"].shape[1:]]
    empty = put(_aten.new_zeros.default, rows, sizes)
    return put(_aten.index_put.default, empty, [mask], rows)
