"""Whether an operator means the same in two versions of its operator set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir
from onnx import defs

from .nodes import all_nodes

FIRST_COMPARABLE = 13
"""Since this opset operators change by accepting more types, and otherwise in their attributes or
the number of their inputs, which shows. Before, many changed their meaning alone."""


# The exceptions: operators that mean something else from a version on, without looking different.
_CHANGED_SILENTLY = {
    "AveragePool": 19,
    "DFT": 20,
    "GridSample": 20,
    "GroupNormalization": 21,
    "RoiAlign": 16,
    "Split": 18,
}


@dataclass(frozen=True, slots=True)
class _Form:
    """What can be seen of an operator's version."""

    since: int
    attributes: frozenset[str]
    min_inputs: int
    max_inputs: int


@cache
def _form(domain: str, op_type: str, opset: int) -> _Form | None:
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None
    return _Form(
        schema.since_version, frozenset(schema.attributes), schema.min_input, schema.max_input
    )


def keeps_meaning(node: ir.Node, written: int, wanted: int) -> bool:
    """Return whether `node`, written for one opset of its domain, is valid and equal in another.

    Operators that the ONNX library does not know are taken to stay what they are.
    """
    if written == wanted or not defs.has(node.op_type, node.domain):
        return True
    old = _form(node.domain, node.op_type, written)
    new = _form(node.domain, node.op_type, wanted)
    if old is None or new is None:
        return False
    if old.since == new.since:
        return True
    low, high = sorted((written, wanted))
    return (
        low >= FIRST_COMPARABLE
        and not low < _CHANGED_SILENTLY.get(node.op_type, 0) <= high
        and new.attributes.issuperset(node.attributes)
        and new.min_inputs == old.min_inputs
        and len(node.inputs) <= new.max_inputs
    )


def mark_differing(
    graph: Iterable[ir.Node], written: Mapping[str, int], wanted: Mapping[str, int]
) -> bool:
    """Set the version of each node that was written for one set of opsets and differs in another.

    Returns whether there are any. Such nodes run only if they are expanded into others.
    """
    found = False
    for node in all_nodes(graph):
        old = node.version or written.get(node.domain)
        new = wanted.get(node.domain)
        if old is not None and new is not None and not keeps_meaning(node, old, new):
            node.version = old
            found = True
        else:
            node.version = None
    return found
