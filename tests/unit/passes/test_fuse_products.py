"""Products that onnxruntime computes wrongly when it fuses them itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

_MODEL = """
<ir_version: 10, opset_import: ["" : 23]>
g ({0}[2,4,5] w, {0}[4] v) => ({0}[2,5] y) {{ t = Transpose <perm = [0, 2, 1]> (w) y = MatMul (t, v) }}
"""  # noqa: E501


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(
    ("name", "dtype"), [("float", np.float32), ("float16", np.float16), ("double", np.float64)]
)
def test_a_transposed_matrix_times_a_vector(
    name: str, dtype: type[np.generic], level: sambac.options.Level
) -> None:
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((2, 4, 5)), rng.standard_normal(4)
    feeds = {"w": w.astype(dtype), "v": v.astype(dtype)}
    model = onnx.parser.parse_model(_MODEL.format(name))
    with sambarun.load(sambac.compile(model, sambac.CompileOptions(level=level))) as executable:
        result = executable.run(feeds)["y"]
    np.testing.assert_allclose(result, w.transpose(0, 2, 1) @ v, rtol=1e-2, atol=1e-2)
