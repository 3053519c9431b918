"""Pointwise convolutions that come before their images are enlarged give the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from near import assert_near
from onnx import numpy_helper

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.select_kernels.convolve_first import ConvolveFirst

SMALL, OTHER, RESULTS = 40, 3, 2

RESIZES = {
    "linear": "<mode = 'linear'> (x, , , sizes)",
    "cubic at corners": (
        "<mode = 'cubic', coordinate_transformation_mode = 'align_corners'> (x, , scales)"
    ),
    "nearest": "<coordinate_transformation_mode = 'asymmetric'> (x, , scales)",
    "cubic inside": "<mode = 'cubic', exclude_outside = 1> (x, , , sizes)",
    "some axes": "<mode = 'linear', axes = [2, 3]> (x, , , two)",
    "last axes by scale": "<mode = 'linear', axes = [3, 2]> (x, , two_scales)",
    "smooth": "<mode = 'linear', antialias = 1> (x, , , sizes)",
}


def _model(body: str, outputs: str = f"float[1, {RESULTS}, 6, 8] y") -> onnx.ModelProto:
    rng = np.random.default_rng(7)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[1, {SMALL}, 3, 4] x, '
        f"float[1, {OTHER}, 6, 8] z) => ({outputs}) "
        f"<int64[4] sizes = {{1, {SMALL}, 6, 8}}, float[4] scales = {{1, 1, 2, 2}}, "
        f"int64[2] two = {{6, 8}}, float[2] two_scales = {{2, 2}}> {{ "
        + body.replace("'", '"')
        + " }"
    )
    weights = {
        "w": (RESULTS, SMALL, 1, 1),
        "v": (RESULTS, SMALL + OTHER, 1, 1),
        "u": (RESULTS, 2 * SMALL, 1, 1),
        "b": (RESULTS,),
    }
    for name, shape in weights.items():
        values = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def _moved(model: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(model)
    InferShapes()(made)
    ConvolveFirst()(made)
    return ir.to_proto(made)


def _feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"x": (1, SMALL, 3, 4), "z": (1, OTHER, 6, 8)}
    return {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}


def _run(model: onnx.ModelProto) -> list[np.ndarray]:
    return ort.InferenceSession(model.SerializeToString()).run(None, _feeds())


def _operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("resize", RESIZES.values(), ids=RESIZES)
def test_every_way_to_enlarge(resize: str) -> None:
    size = f"float[1, {SMALL}, 6, 8] r, float[1, {OTHER}, 6, 8] o"
    (large, other) = _run(_model(f"r = Resize {resize} o = Identity(z)", size))
    whole = np.concatenate([large, other], axis=1).astype(np.float64)
    cases = {
        "r = Resize RESIZE y = Conv(r, w, b)": ("w", large, ["Conv", "Resize"]),
        "r = Resize RESIZE s = Concat<axis = 1>(r, z) y = Conv(s, v, b)": (
            *("v", whole, ["Conv", "Conv", "Resize", "Add"]),
        ),
        "r = Resize RESIZE q = Resize RESIZE s = Concat<axis = 1>(r, q) y = Conv(s, u, b)": (
            *("u", np.concatenate([large, large], axis=1)),
            ["Conv", "Resize", "Conv", "Resize", "Add"],
        ),
    }
    for body, (weight, image, operators) in cases.items():
        model = _model(body.replace("RESIZE", resize))
        weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
        kernel = weights[weight][..., 0, 0].astype(np.float64)
        exact = np.einsum("oc,nchw->nohw", kernel, image.astype(np.float64))
        moved = _moved(model)
        assert _operators(moved) == operators
        assert_near(_run(moved)[0], exact + weights["b"][:, None, None], what=body)


@pytest.mark.parametrize(
    "body",
    [
        "r = Resize<mode = 'linear'>(x, , , sizes) y = Conv<strides = [2, 2]>(r, w)",
        "r = Resize<mode = 'linear'>(x, , , sizes) y = Conv<pads = [1, 1, 1, 1]>(r, w)",
        (
            "r = Resize<coordinate_transformation_mode = 'tf_crop_and_resize', mode = 'linear', "
            "extrapolation_value = 2.0>(x, region, , sizes) y = Conv(r, w)"
        ),
        (
            "r = Resize<mode = 'linear'>(x, , , sizes) a = Relu(r) c = Conv(r, w) "
            "m = ReduceSum(a) y = Add(c, m)"
        ),
        "r = Resize<mode = 'linear'>(z, , , shrunk) y = Conv(r, k)",
        "r = Resize<mode = 'linear'>(x, , , sizes) s = Concat<axis = 3>(r, r) y = Conv(s, w)",
        "r = Resize(x, , between) y = Conv(r, w)",
        "r = Resize<mode = 'linear'>(x, , , sizes) s = Concat<axis = 1>(none, r) y = Conv(s, w)",
    ],
    ids=[
        *("strides", "pads", "numbers from outside", "two readers", "made smaller", "side by side"),
        *("as many channels, but others", "beside no channels"),
    ],
)
def test_what_stays(body: str) -> None:
    model = _model(body, "float[1, 2, h, w] y")
    for name, values in {
        "region": np.asarray([0, 0, 0, 0, 1, 1, 1.5, 1.5], np.float32),
        "shrunk": np.asarray([1, OTHER, 2, 2]),
        "between": np.asarray([1, 1.02, 2, 2], np.float32),
        "k": np.ones((2, OTHER, 1, 1), np.float32),
        "none": np.ones((1, 0, 6, 8), np.float32),
    }.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    assert _operators(_moved(model)) == _operators(model)


def test_first_opset_has_scales_alone() -> None:
    model = _model("r = Resize<mode = 'linear'>(x, scales) y = Conv(r, w)")
    model.opset_import[0].version = 10
    moved = _moved(model)
    assert _operators(moved) == ["Conv", "Resize"]
    assert_near(_run(moved)[0], _run(model)[0].astype(np.float64), what="scales alone")
