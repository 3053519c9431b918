"""What is nearly a normalisation is computed as it is written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

_X = np.random.default_rng(0).uniform(0.5, 2, (4, 4)).astype(np.float32)


@pytest.mark.parametrize("sizes", ["4, 4", "r, c"])
@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("difference", ["x, m", "m, x"])
@pytest.mark.parametrize("quotient", ["d, r", "r, d"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_only_normalisations_are_fused(
    sizes: str, power: int, difference: str, quotient: str, keepdims: int
) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 18]> g (float[{sizes}] x) => (float[{sizes}] y)
        <int64[1] last = {{-1}}, float p = {{{power}.0}}, float e = {{0.25}},
         float[4] w = {{1.0, 2.0, 3.0, 4.0}}, float[4] b = {{0.1, 0.2, 0.3, 0.4}}> {{
            m = ReduceMean (x, last)
            d = Sub ({difference})
            q = Pow (d, p)
            v = ReduceMean <keepdims = {keepdims}> (q, last)
            a = Add (v, e)
            r = Sqrt (a)
            s = Div ({quotient})
            t = Mul (s, w)
            y = Add (t, b)
        }}
    """)
    x = _X.astype(np.float64)
    m = x.mean(1, keepdims=True)
    d = x - m if difference == "x, m" else m - x
    r = np.sqrt((d**power).mean(1, keepdims=bool(keepdims)) + 0.25)
    expected = (d / r if quotient == "d, r" else r / d) * [1, 2, 3, 4] + [0.1, 0.2, 0.3, 0.4]
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": _X})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
