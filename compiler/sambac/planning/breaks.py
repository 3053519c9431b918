"""Section breaks: where a user wants the forward pass to go on in another section."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .view import DataflowView, first_reaching


def parts_of(view: DataflowView, breaks: Sequence[str]) -> Mapping[str, int]:
    """Return the number of the part of the pass that each operator is in, counted from 0.

    Each of `breaks` is a pattern for the whole name of an operator, of what it writes or of its
    module; the first operator that fits begins a part. What needs such an operator is behind it,
    all else before. Where two breaks mean one operator, there is one break.
    """
    starts = [name for pattern in breaks for name in _first(view, re.compile(pattern))]
    order = {name: place for place, name in enumerate(view.ops)}
    last_first = sorted(set(starts), key=order.__getitem__, reverse=True)
    found = first_reaching(view.graph, ([name] for name in last_first))
    return {name: len(last_first) - found.get(name, len(last_first)) for name in view.ops}


def _first(view: DataflowView, pattern: re.Pattern[str]) -> list[str]:
    """Return the first operator that `pattern` means, none if there is none."""
    for op in view.ops.values():
        if not op.cloned and any(map(pattern.fullmatch, (op.name, op.module, *op.outputs))):
            return [op.name]
    return []
