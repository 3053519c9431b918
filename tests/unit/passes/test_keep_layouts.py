"""Resizes between transposes: what onnxruntime gives without moving transposes, in all forms."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import sambac
import sambarun

_SIZES = {"n": 2, "h": 8, "w": 6, "c": 3}
_FORMS = {
    "scales": ("r = Resize <{}> (t, , scales)", "float[4] scales = {1.0, 1.0, 0.5, 1.5}"),
    "sizes": ("r = Resize <{}> (t, , , sizes)", "int64[4] sizes = {2, 3, 5, 4}"),
    "computed": (
        """s = Shape (t) f = Slice (s, zero, two) z = Concat <axis = 0> (f, sizes)
           r = Resize <{}> (t, , , z)""",
        "int64[1] zero = {0}, int64[1] two = {2}, int64[2] sizes = {5, 4}",
    ),
    "scales of axes": (
        "r = Resize <{}, axes = [3, 2]> (t, , scales)",
        "float[2] scales = {1.5, 0.5}",
    ),
    "scales of one": ("r = Resize <{}, axes = [-2]> (t, , scales)", "float[1] scales = {0.5}"),
    "sizes of axes": (
        "r = Resize <{}, axes = [2, 3]> (t, , , sizes)",
        "int64[2] sizes = {5, 4}",
    ),
    "sizes of one": (
        'r = Resize <{}, axes = [2], keep_aspect_ratio_policy = "not_larger"> (t, , , sizes)',
        "int64[1] sizes = {5}",
    ),
    "proportions": (
        """r = Resize <{}, axes = [2, 3], keep_aspect_ratio_policy = "not_smaller">
               (t, , , sizes)""",
        "int64[2] sizes = {5, 4}",
    ),
    "region": (
        """r = Resize <{}, axes = [2, 3],
                       coordinate_transformation_mode = "tf_crop_and_resize">
               (t, region, , sizes)""",
        "int64[2] sizes = {5, 4}, float[4] region = {0.25, 0.0, 1.0, 0.5}",
    ),
}


@pytest.mark.parametrize("mode", ["cubic", "linear", "nearest"])
@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("shape", ["n,h,w,c", "n,h,w,3", "2,h,w,c", "2,8,6,3"])
def test_between_transposes(shape: str, form: str, mode: str) -> None:
    body, constants = _FORMS[form]
    _compare(shape, body.format(f'mode = "{mode}"'), constants)


@pytest.mark.parametrize("form", ["scales", "sizes of axes", "computed"])
def test_one_image_alone(form: str) -> None:
    body, constants = _FORMS[form]
    _compare("1,8,6,c", body.format('mode = "cubic"'), constants)


def test_images_of_which_nothing_is_left() -> None:
    constants = "float[4] scales = {1.0, 1.0, 2.0, 0.1}"
    _compare("2,h,6,3", 'r = Resize <mode = "cubic"> (t, , scales)', constants)


def _compare(shape: str, resizing: str, constants: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 18]>
        g (float[{shape}] x) => (float[a,b,c2,d] y) <{constants}> {{
            t = Transpose <perm = [0, 3, 1, 2]> (x)
            {resizing}
            p = Relu (r)
            y = Transpose <perm = [0, 2, 3, 1]> (p)
        }}
    """)
    sizes = [_SIZES.get(size) or int(size) for size in shape.split(",")]
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (expected,) = plain.run(None, {"x": x})
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
