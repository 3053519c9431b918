"""What the inference of shapes asks of the ONNX library."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from sambac.passes import infer_shapes

_STATIC = """
    <ir_version: 8, opset_import: ["": 20]>
    g (bool c, float[3000000] state, float rate, float[4] x) => (y, z) {
        y = Mul(state, rate)
        z = If (c) <
            then_branch = a () => (t) { t = Neg(x) },
            else_branch = b () => (e) { e = Abs(x) }
        >
    }
"""
_OF_VALUES = """
    <ir_version: 8, opset_import: ["": 20]>
    g (float[2, 3] x, float[6] v) => (y) { s = Shape(x)  y = Reshape(v, s) }
"""
_INSIDE = """
    <ir_version: 8, opset_import: ["": 20]>
    g (bool c, float[2, 3] x, float[6] v) => (y) {
        y = If (c) <
            then_branch = a () => (t) { s = Shape(x)  t = Reshape(v, s) },
            else_branch = b () => (e) { e = Neg(x) }
        >
    }
"""


@pytest.mark.parametrize(
    ("text", "follows"), [(_STATIC, [False]), (_OF_VALUES, [False, True]), (_INSIDE, [False, True])]
)
def test_values_are_followed_only_where_shapes_come_of_them(
    text: str, follows: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library makes an object of every element of a vector whose values it follows."""
    asked: list[bool] = []
    library = onnx.shape_inference.infer_shapes

    def infer(
        proto: onnx.ModelProto, *, strict_mode: bool = False, data_prop: bool = False
    ) -> onnx.ModelProto:
        asked.append(data_prop)
        return library(proto, strict_mode=strict_mode, data_prop=data_prop)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer)
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes.infer(model)
    assert asked == follows
    for value in model.graph.outputs:
        assert value.shape is not None
        assert value.shape.is_static()


@pytest.mark.parametrize("version", [18, 21, 23])
def test_shapes_behind_group_normalization(version: int) -> None:
    """The library knows nothing of it, and then nothing of what reads it."""
    parameters = 2 if version == 18 else 8
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["": {version}]>
        g (float[2, 8, 5, 5] x, float[{parameters}] s, float[8, 1, 1] w) => (z) {{
            y = GroupNormalization <num_groups = 2> (x, s, s)
            p = AveragePool <kernel_shape = [2, 2]> (y)
            z = Mul(w, p)
        }}
        """
    )
    found = ir.from_proto(model)
    infer_shapes.infer(found)
    for node in found.graph:
        assert node.outputs[0].shape is not None
        assert node.outputs[0].dtype == ir.DataType.FLOAT
    assert found.graph.outputs[0].shape == ir.Shape((2, 8, 4, 4))
    group, *_ = found.graph
    assert (group.op_type, len(group.inputs), len(group.attributes)) == ("GroupNormalization", 3, 1)
