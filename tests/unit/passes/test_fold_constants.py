"""Folding where the text of a golden test does not reach: files, refusals, many weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.simplify import fold_constants
from sambac.passes.simplify.fold_constants import FoldConstants

WEIGHT = np.arange(600, dtype=np.float32).reshape(20, 30)


def transposed(count: int) -> onnx.ModelProto:
    """x @ w0^T + x @ w1^T and so on."""
    nodes, weights = [], []
    for index in range(count):
        weights.append(numpy_helper.from_array(WEIGHT + index, f"w{index}"))
        nodes.append(helper.make_node("Transpose", [f"w{index}"], [f"t{index}"]))
        nodes.append(helper.make_node("MatMul", ["x", f"t{index}"], [f"m{index}"]))
    nodes.append(helper.make_node("Sum", [f"m{index}" for index in range(count)], ["y"]))
    values = [
        helper.make_tensor_value_info(name, 1, [2, size]) for name, size in (("x", 30), ("y", 20))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def folded(model: ir.Model) -> ir.Model:
    InferShapes()(model)
    FoldConstants()(model)
    return model


def test_weights_in_files_are_folded(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(transposed(1), path, save_as_external_data=True, location="w", size_threshold=0)
    model = folded(ir.load(path))
    assert [node.op_type for node in model.graph] == ["MatMul", "Sum"]
    tensor = model.graph.initializers["w0_folded"].const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), WEIGHT.T)


def test_weights_are_folded_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_constants, "_MESSAGE_BYTES", 2 * WEIGHT.nbytes)
    model = folded(ir.from_proto(transposed(5)))
    assert [node.op_type for node in model.graph] == ["MatMul"] * 5 + ["Sum"]
    for index in range(5):
        tensor = model.graph.initializers[f"w{index}_folded"].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), (WEIGHT + index).T)


def test_a_weight_larger_than_a_message_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_constants, "_MESSAGE_BYTES", WEIGHT.nbytes - 1)
    model = folded(ir.from_proto(transposed(2)))
    assert [node.op_type for node in model.graph].count("Transpose") == 2


def test_what_fails_at_run_time_stays() -> None:
    model = ir.from_onnx_text("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[2] x) => (float[2] y)
        <float[2] w = {1, 2}, int64 far = {7}>
        { a = Gather (w, far)  y = Add (x, a) }
    """)
    assert [node.op_type for node in folded(model).graph] == ["Gather", "Add"]


@pytest.mark.parametrize("call", ["ReduceMax (w)", "ReduceSum (w, axes)", "MatMul (turned, w)"])
def test_sums_and_products_of_nothing_stay(call: str) -> None:
    """The kernels of onnxruntime give results of other shapes, or that are not written."""
    model = ir.from_onnx_text(f"""
        <ir_version: 8, opset_import: ["" : 13]>
        g (int32[2,2] x) => (int32[2,2] y)
        <int32[0,2] w = {{}}, int32[2,0] turned = {{}}, int64[1] axes = {{0}}>
        {{ a = {call}  y = Add (x, a) }}
    """)
    assert [node.op_type for node in folded(model).graph] == [call.split()[0], "Add"]


@pytest.mark.parametrize("divisor", ["zero", "computed"])
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_an_integer_division_by_zero_stays(operator: str, divisor: str) -> None:
    """Be it a constant from the start, or after it has been computed."""
    model = ir.from_onnx_text(f"""
        <ir_version: 8, opset_import: ["" : 13]>
        g (int64[1] x) => (int64[1] y)
        <int64 one = {{1}}, int64 zero = {{0}}>
        {{ computed = Sub (one, one)  a = {operator} (one, {divisor})  y = Add (x, a) }}
    """)
    assert [node.op_type for node in folded(model).graph][-2:] == [operator, "Add"]


def test_lists_of_whole_numbers_are_folded_and_weights_are_not() -> None:
    """What to pad is computed from lists, so that sizes depend on them."""
    model = ir.from_onnx_text("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[2, 3] x) => (float[a, b] y, float[2] z, int64[2, 2] i, int64[900] far)
        <int64[1] two = {2}, int64[2] both = {2, 2}, int64[1] many = {900}, int64[2] ends = {1, 1}>
        { zeros = ConstantOfShape <value = int64[1] {0}> (two)
          pads = Concat <axis = 0> (zeros, ends)
          y = Pad (x, pads)
          w = ConstantOfShape <value = float[1] {3}> (two)
          z = Neg (w)
          m = ConstantOfShape <value = int64[1] {5}> (both)
          i = Neg (m)
          n = ConstantOfShape <value = int64[1] {5}> (many)
          far = Neg (n) }
    """)
    InferShapes()(folded(model))
    assert [node.op_type for node in model.graph].count("ConstantOfShape") == 3
    assert "Concat" not in {node.op_type for node in model.graph}
    assert list(model.graph.outputs[0].shape or ()) == [3, 4]
