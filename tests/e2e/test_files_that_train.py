"""Several ONNX files in one program of which one trains: the caller says which weights are one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sambac
import sambarun
from sambac import SGD, CompileError, CompileOptions, GraphSource


def linear(weight: np.ndarray, outputs: Mapping[str, tuple[str, list[int]]]) -> onnx.ModelProto:
    """Return x @ w, and further outputs made of it by one operator each."""
    rows, size = 8, weight.shape[1]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["scores"], name="product")]
    for name, (kind, _) in outputs.items():
        nodes.append(helper.make_node(kind, ["scores"], [name], name=f"{name}_node"))
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [rows, weight.shape[0]])],
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, (_, shape) in {"scores": ("", [rows, size]), **outputs}.items()
        ],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((4, 3)).astype(np.float32)
ROWS = RNG.standard_normal((8, 4)).astype(np.float32)
TARGET = RNG.standard_normal((8, 3)).astype(np.float32)


def files(serving: np.ndarray = WEIGHT) -> list[GraphSource]:
    options = CompileOptions(train=True, loss=("mse:scores,target",), optimizers=(SGD(lr=0.1),))
    return [
        GraphSource("fit", linear(WEIGHT, {}), None, options),
        GraphSource("use", linear(serving, {"y": ("Tanh", [8, 3])})),
    ]


def test_weights_of_files_are_one_where_the_caller_says_so() -> None:
    apart = sambarun.load(sambac.compile_graphs(files()))
    together = sambarun.load(sambac.compile_graphs(files(), shared={"w": "w"}))
    weight = WEIGHT.astype(np.float64)
    for _ in range(5):
        for executable in (apart, together):
            executable.step({"x": ROWS, "target": TARGET})
        weight -= 0.1 * ROWS.T @ (2 * (ROWS @ weight - TARGET) / TARGET.size)
    learned = np.tanh(ROWS @ weight)
    np.testing.assert_allclose(together.run({"x": ROWS}, graph="use")["y"], learned, atol=1e-5)
    found = apart.run({"x": ROWS}, graph="use")["y"]
    np.testing.assert_allclose(found, np.tanh(ROWS @ WEIGHT), atol=1e-5)


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(CompileError, match=r"'use.w' and 'w'.* differ in their values"):
        sambac.compile_graphs(files(2 * WEIGHT), shared={"w": "w"})
    fit, use = files()
    assert fit.options is not None
    with pytest.raises(CompileError, match="graph 'fit' has level='O1', and the program level"):
        sambac.compile_graphs([replace(fit, options=replace(fit.options, level="O1")), use])
    with pytest.raises(CompileError, match="a graph is called 'fit/train', as one of 'fit'"):
        sambac.compile_graphs([fit, replace(use, name="fit/train")])
