"""What is nearly a normalisation is computed as it is written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

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


_NORMAL = {
    "x": "float[3, 4]",
    "constants": "float e = {0.25}, float[4] w = {1.0, 2.0, 3.0, 4.0}",
    "axes": "-1",
    "sum": "v, e",
    "product": "s, w",
    "after": "",
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"sum": "e, v"},  # onnxruntime takes the second operand for the epsilon, or else 1e-5
        {"x": "float[3, 4] x, float[1] e", "constants": "float[4] w = {1.0, 2.0, 3.0, 4.0}"},
        {"constants": "float[4] e = {0.25, 1.0, 2.0, 3.0}, float[4] w = {1.0, 2.0, 3.0, 4.0}"},
        {"constants": "float[1, 1, 1] e = {0.25}, float[4] w = {1.0, 2.0, 3.0, 4.0}"},
        {"x": "double[3, 4]"},
        {"x": "float[4]"},
        {"x": "float[4]", "product": "w, s"},
        {"x": "float[3, 1]"},
        {"axes": "-2", "x": "float[4, 4]"},
        {"after": "f = Div (one, r) s = Mul (f, d)"},
        {"after": "f = Div (ones, r) s = Mul (f, d)"},
    ],
    ids=str,
)
@pytest.mark.parametrize("mean", [True, False])
def test_forms_of_normalisations(changed: dict[str, str], mean: bool) -> None:
    form = {**_NORMAL, **changed}
    inputs = form["x"] if " x" in form["x"] else f"{form['x']} x"
    dtype = inputs.partition("[")[0]
    text = f"""
        <ir_version: 10, opset_import: ["": 17]> g ({inputs}) => ({dtype}[] y)
        <float p = {{2.0}}, float one = {{1.0}}, float[1, 1, 1] ones = {{1.0}},
         {form["constants"]}, float[4] b = {{0.1, 0.2, 0.3, 0.4}}> {{
            m = ReduceMean <axes = [{form["axes"]}]> (x)
            d = {"Sub (x, m)" if mean else "Identity (x)"}
            q = Pow (d, p)
            v = ReduceMean <axes = [{form["axes"]}]> (q)
            a = Add ({form["sum"]})
            r = Sqrt (a)
            {form["after"] or "s = Div (d, r)"}
            t = Mul ({form["product"]})
            y = Add (t, b)
        }}
    """
    model = onnx.parser.parse_model(text.replace("float", dtype))
    rng = np.random.default_rng(0)
    feeds = {
        port.name: rng.uniform(0.5, 2, [d.dim_value for d in port.type.tensor_type.shape.dim])
        for port in model.graph.input
    }
    expected = ReferenceEvaluator(model.graph, opsets={"": 17}).run(None, _typed(feeds, dtype))[0]
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run(_typed(feeds, dtype))["y"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def _typed(feeds: dict[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    numpy = {"float": np.float32, "double": np.float64}[dtype]
    return {name: array.astype(numpy) for name, array in feeds.items()}


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("weights", ["constants", "inputs", "both"])
def test_normalisations_of_float16(weights: str, mean: bool) -> None:
    given = {"constants": "", "inputs": ", float16[4] w, float16[4] b", "both": ", float16[4] w"}
    lines = {"w": "w = Cast <to = 10> (w0)", "b": "b = Cast <to = 10> (b0)"}
    made = [lines[name] for name in "wb" if f" {name}" not in given[weights]]
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 17]>
        g (float16[3, 4] x{given[weights]}) => (float16[] y)
        <float p0 = {{2.0}}, float e0 = {{0.25}}, float[4] w0 = {{1.0, 2.0, 3.0, 4.0}},
         float[4] b0 = {{0.5, 1.0, 1.5, 2.0}}> {{
            p = Cast <to = 10> (p0) e = Cast <to = 10> (e0) {" ".join(made)}
            m = ReduceMean <axes = [-1]> (x)
            d = {"Sub (x, m)" if mean else "Identity (x)"}
            q = Pow (d, p)
            v = ReduceMean <axes = [-1]> (q)
            a = Add (v, e)
            r = Sqrt (a)
            s = Div (d, r)
            t = Mul (s, w)
            y = Add (t, b)
        }}
    """)
    x = np.random.default_rng(0).uniform(0.5, 2, (3, 4)).astype(np.float16)
    feeds = {"x": x, "w": np.arange(1, 5), "b": np.arange(1, 5) / 2}
    names = [port.name for port in model.graph.input]
    d = x.astype(np.float64) - (x.astype(np.float64).mean(1, keepdims=True) if mean else 0)
    expected = d / np.sqrt((d**2).mean(1, keepdims=True) + 0.25) * feeds["w"] + feeds["b"]
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({name: feeds[name].astype(np.float16) for name in names})["y"]
    np.testing.assert_allclose(found, expected, rtol=4e-3, atol=4e-3)
