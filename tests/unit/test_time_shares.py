"""What each layer takes of the modelled time: its arithmetic or its weights."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from sambac.arch import load_device
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.quantization.recipe import time_shares


def test_arithmetic_or_weights_limit_an_operator() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> '
        "g (float[1,256] few, float[9999,256] many) => (float[1,256] y, float[9999,256] z) "
        "{ y = MatMul(few, w) z = MatMul(many, w) }"
    )
    weights = np.zeros((256, 256), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model = ir.from_proto(proto)
    InferShapes()(model)
    arch = load_device("sn40l")
    found = dict(zip(("y", "z"), time_shares(model, arch).values(), strict=True))
    assert sum(found.values()) == pytest.approx(1)
    speed = arch.speed(arch.main_memory)
    assert speed is not None
    read = weights.nbytes / speed
    computed = 2 * 9999 * 256 * 256 / (arch.peak_flops.value * arch.compute_efficiency.value)
    assert computed > read  # else nothing would be seen of it
    assert found["z"] / found["y"] == pytest.approx(computed / read)
