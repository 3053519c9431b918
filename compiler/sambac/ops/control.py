"""Control flow: what it costs is what its subgraphs cost, times how often they run."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.nodes import input_at, int_attribute

from .family import Family, dim, each, nothing

_FLOPS = {
    **each("If Loop Scan SequenceMap", nothing),
    **each("BeamSearch GreedySearch Sampling WhisperBeamSearch", nothing, "com.microsoft"),
}

THROUGH_CONTROL_FLOW = (
    "nothing is trained through control flow, such as torch.cond and loops: compute all branches "
    "and choose with torch.where, write loops out"
)
"""Why there are no gradients, and what to do about it."""

FAMILY = Family(
    "control flow",
    _FLOPS,
    undifferentiable=dict.fromkeys(_FLOPS, THROUGH_CONTROL_FLOW),
)


_ENDLESS = 2**31 - 1
"""Exporters write this, or the largest int64, where only a condition ends a loop."""


def executions(node: ir.Node) -> int:
    """Return how often the body of a control-flow node runs, 1 where only a run can tell."""
    if node.op_type == "Scan":
        scanned = input_at(node, len(node.inputs) - int_attribute(node, "num_scan_inputs", 1))
        return dim(scanned, 0) or 1
    if node.op_type == "Loop":
        trips = input_at(node, 0)
        tensor = trips.const_value if trips is not None else None
        count = max(int(tensor.numpy().item()), 0) if tensor is not None else 1
        return count if count < _ENDLESS else 1
    return 1
