"""Models as messages, for the frontend to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

Make = Callable[..., onnx.ModelProto]


@pytest.fixture
def make() -> Make:
    """Return a function that makes `y = MatMul(x, w)` with x of [N, 3] and w of ones."""

    def matmul(
        *, opset: int = 17, ir_version: int = 8, listed: bool = False, rows: int = 3
    ) -> onnx.ModelProto:
        info = helper.make_tensor_value_info
        inputs = [info("x", TensorProto.FLOAT, ["N", rows])]
        if listed:
            inputs.append(info("w", TensorProto.FLOAT, [rows, 4]))
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"], doc_string="why")],
            "graph",
            inputs,
            [info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.ones((rows, 4), np.float32), "w")],
        )
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)

    return matmul


@pytest.fixture
def external(make: Make, tmp_path: Path) -> Path:
    """Return the path of a model whose weight of 16 KiB lies in `w.bin` beside it."""
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "m.onnx"
    model = make(rows=1024)
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path
