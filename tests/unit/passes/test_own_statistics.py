"""Running statistics are read after the kernel of BatchNormalization has returned new ones."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.passes.legalize.ownership import OwnStatistics

TEXT = """
<ir_version: 10, opset_import: ["" : 23]>
update (float[4, 3, 5] x, float[3] scale, float[3] bias{inputs})
  => (float[4, 3, 5] y, float[3] next)
<float keep = {{0.5}}{constants}>
{{
  y, batch_mean, batch_var = BatchNormalization <training_mode = 1, momentum = 0.0>
      (x, scale, bias, mean, var)
  sum = Add (mean, batch_mean)
  next = Mul (sum, keep)
}}
"""
VALUES = {"mean": np.full(3, 8, np.float32), "var": np.full(3, 4, np.float32)}
CONSTANTS = ", float[3] mean = {8, 8, 8}, float[3] var = {4, 4, 4}"


@pytest.mark.parametrize("constant", [False, True])
def test_old_statistics_stay_what_they_were(constant: bool):
    inputs = "" if constant else ", float[3] mean, float[3] var"
    text = TEXT.format(inputs=inputs, constants=CONSTANTS if constant else "")
    model = ir.from_proto(onnx.parser.parse_model(text))
    OwnStatistics()(model)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    x = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
    given = {} if constant else {name: value.copy() for name, value in VALUES.items()}
    feeds = {"x": x, "scale": np.ones(3, np.float32), "bias": np.zeros(3, np.float32), **given}
    expected = (VALUES["mean"] + x.mean((0, 2))) / 2
    for _ in range(2):
        (following,) = session.run(["next"], feeds)
        np.testing.assert_allclose(following, expected, rtol=1e-5)
    for name, value in given.items():
        np.testing.assert_array_equal(value, VALUES[name])


def test_statistics_are_copied_once():
    text = TEXT.format(inputs=", float[3] mean, float[3] var", constants="")
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert OwnStatistics()(model).modified
    assert not OwnStatistics()(model).modified
