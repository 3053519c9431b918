"""Gradients that a model brings itself: OwnGradient and IncomingGradient, from ONNX text."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.autodiff import differentiate
from sambac.errors import CompileError, InternalError
from sambac.graph.own_gradients import DOMAIN
from sambac.passes.differentiation.lower_own_gradients import LowerOwnGradients
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.simplify.eliminate_dead_code import EliminateDeadCode

_HEADER = f'<ir_version: 10, opset_import: ["": 23, "{DOMAIN}": 1]>'
_STRAIGHT = f"""g (float[2,3] x, float[3] s) => (float[2,3] out) {{
  t = Mul (x, s)
  y = Round (t)
  d = {DOMAIN}.IncomingGradient (y)
  m = Abs (x)
  e = Mul (d, m)
  r = {DOMAIN}.OwnGradient (y, d, t, e)
  out = Mul (r, r)
}}"""
_PAIR = f"""g (float[2,3] x, float[2,3] s) => (float[2,3] out) {{
  y = Mul (x, s)
  z = Add (x, s)
  d = {DOMAIN}.IncomingGradient <number = 0> (y)
  f = {DOMAIN}.IncomingGradient <number = 1> (z)
  e = Add (d, f)
  h = Sub (d, f)
  out, unread = {DOMAIN}.OwnGradient (y, z, d, f, x, s, e, h)
}}"""


def _gradients(text: str, **feeds: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the output for these inputs, and what comes to each from a gradient of ones."""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(f"{_HEADER} {text}"))
    for number, node in enumerate(model.graph):
        node.name = f"node_{number}"
    InferShapes()(model)
    (out,) = model.graph.outputs
    seed = ir.Value(name="seed", type=out.type, shape=out.shape)
    model.graph.inputs.append(seed)
    trained = model.graph.inputs[:-1]
    found = differentiate(model, {out: seed}, trained)
    model.graph.outputs.extend(found.values())
    LowerOwnGradients()(model)
    EliminateDeadCode()(model)
    assert DOMAIN not in model.opset_imports
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    ones = np.ones(tuple(out.shape or ()), np.float32)
    result, *values = session.run(None, {**feeds, "seed": ones})
    return result, dict(zip((str(value.name) for value in found), values, strict=True))


def test_the_gradient_goes_the_way_that_the_model_says() -> None:
    x = np.array([[0.4, -1.2, 2.3], [3.1, -0.6, 1.7]], np.float32)
    s = np.array([1.0, 2.0, 3.0], np.float32)
    result, found = _gradients(_STRAIGHT, x=x, s=s)
    rounded = np.round(x * s)
    np.testing.assert_allclose(result, rounded**2)
    through = 2 * rounded * np.abs(x)
    np.testing.assert_allclose(found["x"], through * s, rtol=1e-6)
    np.testing.assert_allclose(found["s"], (through * x).sum(0), rtol=1e-6)


def test_a_result_that_nothing_reads_has_a_gradient_of_zeros() -> None:
    x, s = np.full((2, 3), 2, np.float32), np.full((2, 3), 5, np.float32)
    result, found = _gradients(_PAIR, x=x, s=s)
    np.testing.assert_array_equal(result, 10)
    np.testing.assert_array_equal(found["x"], 1)
    np.testing.assert_array_equal(found["s"], 1)


def test_loops_on_the_way_are_refused() -> None:
    choice = """e = If (c) <
      then_branch = t () => (float[2,3] a) { a = Neg (d) },
      else_branch = f () => (float[2,3] b) { b = Abs (d) }>"""
    text = _STRAIGHT.replace("e = Mul (d, m)", f"c = Equal (m, m) q = ReduceMax (s) {choice}")
    text = text.replace("c = Equal (m, m) q = ReduceMax (s)", "q = ReduceMax (s) c = IsNaN (q)")
    flat = text.replace("q = ReduceMax (s)", "q = ReduceMax <keepdims = 0> (s)")
    with pytest.raises(CompileError, match=r"the backward method has control flow \(If\)"):
        _gradients(flat, x=np.ones((2, 3), np.float32), s=np.ones(3, np.float32))


def test_what_is_no_incoming_gradient_is_none() -> None:
    text = _STRAIGHT.replace("(y, d, t, e)", "(y, m, t, e)")
    with pytest.raises(InternalError, match="gradients that are not incoming ones"):
        _gradients(text, x=np.ones((2, 3), np.float32), s=np.ones(3, np.float32))
