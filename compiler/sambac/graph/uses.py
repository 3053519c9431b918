"""Who reads what: the readers of one value are given another."""

from __future__ import annotations

import onnx_ir as ir

from .node_facts import static_shape


def redirect(old: ir.Value, new: ir.Value) -> str | None:
    """Let all readers of `old` read `new`; a graph output keeps its name.

    Return the reason when that is impossible: an output of a graph has to be computed in it, and
    one value cannot be two outputs.
    """
    if old.is_graph_output():
        producer, maker = old.producer(), new.producer()
        if maker is None or producer is None or maker.graph is not producer.graph:
            return "a graph output has to be computed in its graph"
        if new.is_graph_output():
            return "both values are graph outputs"
    _adopt_facts(new, old)
    name = old.name
    renamed = old.is_graph_output()
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if renamed:
        old.name = None
        new.name = name
    return None


def supersede(old: ir.Value, new: ir.Value) -> None:
    """Let all readers of `old` read `new`, which gets its name and its place among outputs."""
    name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None
    new.name = name


def _adopt_facts(value: ir.Value, other: ir.Value) -> None:
    """Take what is known about an equal value: the type, and dimensions that are numbers."""
    if value.type is None:
        value.type = other.type
    if static_shape(value) is None and other.shape is not None and not value.is_graph_input():
        value.shape = other.shape
