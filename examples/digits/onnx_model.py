"""The way without PyTorch: a small network as an ONNX file; compiling it chooses the loss.

python examples/digits/onnx_model.py digits.onnx
sambac compile digits.onnx --train --loss cross_entropy:logits,y --optimizer adamw:lr=1e-3
"""

from __future__ import annotations

import sys
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH = 32
_SEED = 0
_SHAPES = {"hidden.weight": (64, 128), "output.weight": (128, 10)}


def network() -> onnx.ModelProto:
    """Return two layers: pictures x, float32 [32, 1, 8, 8], to logits [32, 10]."""
    random = np.random.default_rng(_SEED)
    weights = [
        numpy_helper.from_array(
            (random.standard_normal(shape) * (2 / shape[0]) ** 0.5).astype(np.float32), name
        )
        for name, shape in _SHAPES.items()
    ]
    weights += [
        numpy_helper.from_array(np.zeros(shape[1], np.float32), name.replace("weight", "bias"))
        for name, shape in _SHAPES.items()
    ]
    nodes = [
        helper.make_node("Flatten", ["x"], ["pixels"]),
        helper.make_node("Gemm", ["pixels", "hidden.weight", "hidden.bias"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["features"]),
        helper.make_node("Gemm", ["features", "output.weight", "output.bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [BATCH, 10])],
        weights,
    )
    opsets = [helper.make_opsetid("", 23)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


if __name__ == "__main__":
    onnx.save(network(), Path(sys.argv[1]))
    count = sum(prod(tensor.dims) for tensor in network().graph.initializer)
    print(f"{sys.argv[1]}: {count:,} numbers to train")
