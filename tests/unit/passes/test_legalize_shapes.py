"""Types and shapes: inferred, never believed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from sambac.errors import CompileError
from sambac.graph.protos import skeleton

Legalized = Callable[[str], ir.Model]


def shapes(model: ir.Model) -> dict[str, str]:
    return {
        str(value.name): f"{value.dtype} {value.shape}"
        for node in model.graph.all_nodes()
        for value in node.outputs
    }


def test_declared_shapes_are_not_believed(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3] x) => (float[7,7] y) <float[9] a> { a = Relu (x) y = Transpose (a) }"""
    )
    assert shapes(model) == {"a": "FLOAT [2,3]", "y": "FLOAT [3,2]"}


def test_shapes_flow_through_constants(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3,4] x) => (y, z) {
          s = Constant <value_ints: ints = [6, -1]> ()
          y = Reshape (x, s)
          t = Shape (y)
          z = ConstantOfShape (t)
        }"""
    )
    assert shapes(model)["z"] == "FLOAT [6,4]"


@pytest.mark.parametrize("axes", ["-1", "-1, 1"])
def test_axes_that_are_reshaped_constants_are_known(legalized: Legalized, axes: str) -> None:
    """So PyTorch's exporter writes them, where it does not optimize."""
    model = legalized(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[2,3,4] x, float[1,3,4] v) => (y) {{
          axes = Constant <value_ints: ints = [{axes}]> ()
          sizes = Constant <value_ints: ints = [-1]> ()
          named = Reshape (axes, sizes)
          again = Reshape (named, sizes)
          norm = ReduceL2 <keepdims = 1> (v, again)
          w = Mul (v, norm)
          y = Conv (x, w)
        }}"""
    )
    assert shapes(model)["w"] == "FLOAT [1,3,4]"
    assert [node.op_type for node in model.graph] == ["ReduceL2", "Mul", "Conv"]


def test_reshaped_constants_stay_where_they_are_results(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2] x, int64[1] open) => (y, int64[2,1] z, w) <int64[2] both = {2, 1}> {
          one = Constant <value_float: float = 1.0> ()
          z = Reshape (both, both)
          w = Reshape (both, open)
          y = Add (x, one)
        }"""
    )
    assert sorted(node.op_type for node in model.graph) == ["Add", "Reshape", "Reshape"]


def test_data_dependent_sizes_are_unknown(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3] x) => (y) { y = NonZero (x) }"""
    )
    shape = next(iter(model.graph)).outputs[0].shape
    assert shape is not None
    assert shape.dims[0] == 2
    assert not isinstance(shape.dims[1], int)


def test_a_rank_that_onnxruntime_does_not_know_stays_unknown(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        g (float[2,3] x) => (y) {
          y = ai.onnx.ml.Scaler <offset: floats = [1.0], scale: floats = [2.0]> (x)
        }"""
    )
    (value,) = next(iter(model.graph)).outputs
    assert value.dtype == ir.DataType.FLOAT
    assert value.shape is None


def test_operators_of_other_domains_are_typed_by_onnxruntime(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[N,8] x, float[8,4] w) => (y) {
          a = com.microsoft.FusedMatMul (x, w)
          y = Relu (a)
        }"""
    )
    assert shapes(model) == {"a": "FLOAT [N,4]", "y": "FLOAT [N,4]"}


def test_subgraphs_are_typed_too(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[N,8] x, float[8,4] w, bool c) => (y) {
          a = com.microsoft.FusedMatMul (x, w)
          y = If (c) <
            then_branch = then () => (p) { p = com.microsoft.Gelu (a) },
            else_branch = otherwise () => (q) { q = Relu (a) }
          >
        }"""
    )
    assert {name: text.split()[0] for name, text in shapes(model).items()} == dict.fromkeys(
        ("a", "y", "p", "q"), "FLOAT"
    )


def test_contradicting_shapes_are_the_users_error(legalized: Legalized) -> None:
    with pytest.raises(CompileError, match=r"contradict each other.*Incompatible dimensions"):
        legalized(
            """<ir_version: 8, opset_import: ["" : 17]>
            g (float[2,3] x, float[4,5] w) => (y) { y = MatMul (x, w) }"""
        )


def test_dots_for_axes_of_different_numbers_are_the_users_error(legalized: Legalized) -> None:
    """onnxruntime ends the process as it reads the model."""
    with pytest.raises(CompileError, match=r"contradict each other.*represents 0 dimensions\.; "):
        legalized(
            """<ir_version: 8, opset_import: ["" : 17]>
            g (float[3] x, float[2,3] w) => (y) {
              y = Einsum <equation = "...i,...i->..."> (x, w)
            }"""
        )


def test_a_skeleton_has_no_weights() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (y) { y = Relu (x) }'
    )
    for name, size in (("large", 1000), ("small", 10)):
        tensor = ir.Tensor(np.zeros(size, np.float32), name=name)
        value = ir.Value(
            name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor
        )
        model.graph.register_initializer(value)
    proto = skeleton(model)
    assert [tensor.name for tensor in proto.graph.initializer] == ["small"]
    assert [value.name for value in proto.graph.input] == ["x", "large"]
    assert proto.graph.input[1].type.tensor_type.shape.dim[0].dim_value == 1000
