"""What models of PyTorch are when they are loaded."""

from __future__ import annotations

import onnx_ir as ir
from torch import nn

from sambac.frontend.torch.loading import load_torch
from sambac.options import CompileOptions


def parts(module: nn.Module, inputs: object) -> list[str]:
    """All that the model of `module` has, where it trains, in order."""
    source = load_torch(module, CompileOptions(train=True), inputs)
    models = (source.model, source.evaluation)
    return [part for model in models if model is not None for part in parts_of(model.graph)]


def parts_of(graph: ir.Graph) -> list[str]:
    values = (*graph.inputs, *graph.initializers.values(), *graph.outputs)
    contents = [value.const_value.numpy().tobytes() for value in graph.initializers.values()]
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    said = [dict(node.metadata_props) for node in nodes]
    return [str(part) for part in (*values, *contents, *nodes, *said)]
