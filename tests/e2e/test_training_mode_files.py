"""ONNX files that were exported as they train: batch statistics and active dropout in the nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import pef
import sambac
import sambarun

_MODEL = """
<ir_version: 10, opset_import: ["" : 17]>
g (float[4,3] x) => (float[4,3] y, float loss{more})
<float[3] s = {{1, 2, 3}}, float[3] b = {{0, 1, 0}}, float[3] mean = {{0, 1, 2}},
 float[3] var = {{1, 1, 2}}, float rate = {{0.5}}, bool on = {{1}}>
{{
  n, m, v = BatchNormalization <training_mode = 1, momentum = 0.75> (x, s, b, mean, var)
  y = Dropout (n, rate, on)
  q = Mul (y, y)
  loss = ReduceMean <keepdims = 0> (q)
}}
"""
_OPTIONS = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(sambac.SGD(lr=0.0),))


def _compile(more: str = "") -> pef.Program:
    return sambac.compile(onnx.parser.parse_model(_MODEL.format(more=more)), _OPTIONS)


def test_statistics_are_kept_and_evaluation_uses_them() -> None:
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    with sambarun.load(_compile()) as executable:
        executable.step({"x": x})
        state = executable.state()
        results = [executable.run({"x": x}, section_types=["FWD"])["y"] for _ in range(2)]
    mean = 0.75 * np.array([0, 1, 2]) + 0.25 * x.mean(0)
    variance = 0.75 * np.array([1, 1, 2]) + 0.25 * x.var(0)
    np.testing.assert_allclose(state["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(state["var"], variance, rtol=1e-5)
    want = (x - mean) / np.sqrt(variance + 1e-5) * np.array([1, 2, 3]) + np.array([0, 1, 0])
    for result in results:
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_statistics_as_results_are_refused() -> None:
    with pytest.raises(sambac.CompileError, match=r"running statistics of .* are results"):
        _compile(more=", float[3] m")


_OLD = """
<ir_version: 7, opset_import: ["" : 12]>
g (float[4,3] x) => (float[4,3] y, float loss{more})
<float[3] s = {{1, 2, 3}}, float[3] b = {{0, 1, 0}}, float[3] mean = {{0, 1, 2}},
 float[3] var = {{1, 1, 2}}, float rate = {{0.5}}, bool on = {{1}}>
{{
  n, m, v, sm, sv = BatchNormalization <momentum = 0.75> (x, s, b, mean, var)
  y = Dropout (n, rate, on)
  q = Mul (y, y)
  loss = ReduceMean <keepdims = 0> (q)
}}
"""


def test_five_outputs_of_an_old_normalization() -> None:
    """Opsets before 14 say by further outputs that a normalisation trains."""
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    states = []
    old = sambac.compile(onnx.parser.parse_model(_OLD.format(more="")), _OPTIONS)
    for program in (_compile(), old):
        with sambarun.load(program) as executable:
            executable.step({"x": x})
            states.append(executable.state())
    assert states[0]["mean"].any()
    for name, array in states[0].items():
        np.testing.assert_array_equal(states[1][name], array, err_msg=name)


def test_statistics_of_an_old_normalization_as_results_are_refused() -> None:
    model = onnx.parser.parse_model(_OLD.format(more=", float[3] m"))
    model.graph.node[0].name = "norm"
    with pytest.raises(sambac.CompileError, match="running statistics of 'norm' are results"):
        sambac.compile(model, _OPTIONS)
