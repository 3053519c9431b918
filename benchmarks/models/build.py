"""A small builder of ONNX graphs: operators in order, weights by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import helper, numpy_helper

FLOAT = onnx.TensorProto.FLOAT
INT64 = onnx.TensorProto.INT64

# Element type and shape of each input; value of the graph and shape of each (float) output.
Signature = Mapping[str, tuple[int, Sequence[int | str]]]
Results = Mapping[str, tuple[str, Sequence[int | str]]]


class GraphBuilder:
    """Collects nodes and weights; values are referred to by name.

    A node is named after its first output, and its outputs after the node, as PyTorch's exporter
    does it (`/layer.0/MatMul` computes `/layer.0/MatMul_output_0`).
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._taken: dict[str, int] = {}

    def op(self, kind: str, *inputs: str, scope: str = "", **attributes: object) -> str:
        """Add an operator with one output; returns the output's name."""
        return self.ops(kind, *inputs, scope=scope, count=1, **attributes)[0]

    def ops(
        self, kind: str, *inputs: str, scope: str = "", count: int, **attributes: object
    ) -> tuple[str, ...]:
        """Add an operator with `count` outputs; returns their names."""
        name = self._unique(f"{scope}/{kind}")
        outputs = tuple(f"{name}_output_{index}" for index in range(count))
        node = helper.make_node(kind, inputs, outputs, name)
        node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        self._nodes.append(node)
        return outputs

    def constant(self, name: str, value: ArrayLike, dtype: type = np.float32) -> str:
        """Add a weight with this value, or reuse the one of this name; returns the name."""
        if name not in self._weights:
            array: NDArray[np.generic] = np.asarray(value, dtype)
            self._weights[name] = numpy_helper.from_array(array, name)
        return name

    def random(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0.0) -> str:
        """Add a float32 weight of normally distributed values; returns the name."""
        values = self.rng.standard_normal(tuple(shape), dtype=np.float32)
        return self.constant(name, values * np.float32(deviation) + np.float32(mean))

    def model(
        self, name: str, inputs: Signature, outputs: Results, opset: int = 17
    ) -> onnx.ModelProto:
        """The finished model, IR version 8; the values given as outputs take the outputs' names."""
        renamed = {value: output for output, (value, _) in outputs.items()}
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [renamed.get(value, value) for value in names]
        graph = helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(key, *spec) for key, spec in inputs.items()],
            [
                helper.make_tensor_value_info(key, FLOAT, shape)
                for key, (_, shape) in outputs.items()
            ],
            list(self._weights.values()),
        )
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def _unique(self, name: str) -> str:
        count = self._taken.get(name, 0)
        self._taken[name] = count + 1
        return f"{name}_{count}" if count else name
