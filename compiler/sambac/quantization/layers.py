"""What became of each layer, as plain numbers."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from sambac.facts import LayerNumbers
from sambac.graph.nodes import all_nodes
from sambac.ops import flops_of
from sambac.passes.quantized_layers import Quantised


def rows_of(model: ir.Model) -> Iterator[LayerNumbers]:
    """Yield a row for each layer that has been quantised, in the order of the graph."""
    work = sum(flops_of(node) for node in all_nodes(model.graph))
    for node in model.graph:
        found = Quantised.noted(node)
        if found is not None:
            yield LayerNumbers(
                layer=found.layer,
                operator=found.operator,
                precision=found.precision,
                scale=found.scale,
                weights=found.weights,
                share=flops_of(node) / max(work, 1),
            )
