"""Operators of which onnxruntime ends the process without elements fail in a run instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import sambac
import sambarun
from sambac.passes.workarounds.refuse_empty import RefuseEmpty


@dataclass(frozen=True)
class Case:
    """An operator of inputs, by shape, with axes that are open; `empty` are sizes that end it."""

    body: str
    inputs: Mapping[str, str]
    empty: Mapping[str, int]
    some: Mapping[str, int] = field(default_factory=dict)
    """Sizes with which it runs, where 2 for all would not fit."""


_RECURRENT = {"x": "float[s,b,2]", "w": "float[1,{n},2]", "r": "float[1,{n},3]"}


def _recurrent(op: str, gates: int, empty: Mapping[str, int]) -> Case:
    inputs = {name: shape.format(n=3 * gates) for name, shape in _RECURRENT.items()}
    return Case(f"y = {op} <hidden_size = 3> (x, w, r)", inputs, empty)


_VOLUMES = {"x": "float[1,1,a,4,5]", "w": "float[1,2,3,3,3]"}
_HEADS = dict.fromkeys("xkv", "float[2,h,4,8]")
CASES = {
    "attention": Case("y = Attention (x, k, v)", _HEADS, {"h": 0}),
    "channels": Case("y = Conv <pads = [1,1,1,1]> (x, w)",
                     {"x": "float[1,c,5,5]", "w": "float[1,c,3,3]"}, {"c": 0}),
    "channels, same": Case('y = Conv <auto_pad = "SAME_UPPER"> (x, w)',
                           {"x": "float[1,c,5,5]", "w": "float[1,c,3,3]"}, {"c": 0}),
    "volume": Case("y = ConvTranspose (x, w)", _VOLUMES, {"a": 0}),
    "steps of a GRU": _recurrent("GRU", 3, {"s": 0}),
    "examples of a GRU": _recurrent("GRU", 3, {"b": 0}),
    "examples of an LSTM": _recurrent("LSTM", 4, {"b": 0}),
    "blocks": Case("y = QuantizeLinear <axis = 1, block_size = 2> (x, s)",
                   {"x": "float[3,a]", "s": "float[3,b]"}, {"a": 0, "b": 0}, {"a": 4}),
    "behind blocks": Case("y = QuantizeLinear <axis = -2, block_size = 2> (x, s)",
                          {"x": "float[4,a]", "s": "float[2,a]"}, {"a": 0}),
    "read blocks": Case("y = DequantizeLinear <axis = 0, block_size = 2> (x, s)",
                        {"x": "uint8[4,a]", "s": "float[2,a]"}, {"a": 0}),
    "window": Case("y = STFT (x, step, w)",
                   {"x": "float[1,128,1]", "step": "int64", "w": "float[n]"}, {"n": 0}),
}  # fmt: skip


def _model(case: Case) -> onnx.ModelProto:
    ports = ", ".join(f"{shape} {name}" for name, shape in case.inputs.items())
    text = f'<ir_version: 10, opset_import: ["": 23]> g ({ports}) => (y) {{ {case.body} }}'
    model = onnx.parser.parse_model(text.replace("=> (y)", "=> (float y)"))
    del model.graph.output[:]
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    out = next(value for value in inferred.graph.value_info if value.name == "y")
    model.graph.output.append(out)
    return model


def _feeds(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    feeds = {}
    for port in model.graph.input:
        tensor = port.type.tensor_type
        shape = [
            sizes.get(d.dim_param, 2) if d.dim_param else d.dim_value for d in tensor.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[port.name] = np.ones(shape, dtype)
    return feeds


@pytest.mark.parametrize("name", CASES)
def test_a_run_without_elements_fails(name: str) -> None:
    case = CASES[name]
    model = ir.from_proto(_model(case))
    assert RefuseEmpty()(model).modified
    assert not RefuseEmpty()(model).modified
    proto = ir.to_proto(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    with pytest.raises(Exception, match=r"cannot be reshaped.*Input shape:\{.*0.*\}"):
        session.run(None, _feeds(proto, case.empty))
    plain = onnxruntime.InferenceSession(_model(case).SerializeToString())
    feeds = _feeds(proto, case.some)
    for made, want in zip(session.run(None, feeds), plain.run(None, feeds), strict=True):
        np.testing.assert_array_equal(made, want)


def test_what_runs_without_elements_is_left_alone() -> None:
    for body, inputs in (
        ("y = LSTM <hidden_size = 3> (x, w, r)",
         {"x": "float[s,2,2]", "w": "float[1,12,2]", "r": "float[1,12,3]"}),
        ("y = Conv <pads = [1,1,1,1]> (x, w)", {"x": "float[n,1,a,5]", "w": "float[1,1,3,3]"}),
        ("y = Conv (x, w)", {"x": "float[1,c,5,5]", "w": "float[1,c,3,3]"}),
        ("y = QuantizeLinear (x, s)", {"x": "float[3,a]", "s": "float[a]"}),
        ("y = QuantizeLinear <axis = 1, block_size = 2> (x, s)",
         {"x": "float[a,4]", "s": "float[a,2]"}),
        ("y = ConvTranspose (x, w)", {"x": "float[1,1,a,5]", "w": "float[1,2,3,3]"}),
    ):  # fmt: skip
        assert not RefuseEmpty()(ir.from_proto(_model(Case(body, inputs, {})))).modified


def test_what_is_known_to_have_no_elements_fails_in_a_run() -> None:
    """Beside a number of steps that nothing tells: else the result would be made of nothing."""
    text = """g (float[n,0,2] x, float[1,12,2] w, float[1,12,3] r, int64[1] k) => (y) {
        none = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
        s = Slice (x, none, k, none, one) y = LSTM <hidden_size = 3> (s, w, r) }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {text}')
    feeds = _feeds(model, {})
    with (
        sambarun.load(sambac.compile(model)) as executable,
        pytest.raises(sambarun.RunError, match=r"Input shape:\{1,0,2\}"),
    ):
        executable.run({**feeds, "k": np.ones(1, np.int64)})


def test_a_program_says_so() -> None:
    model = _model(CASES["blocks"])
    with sambarun.load(sambac.compile(model)) as executable:
        with pytest.raises(sambarun.RunError, match=r"Input shape:\{3,0\}"):
            executable.run(_feeds(model, {"a": 0, "b": 0}))
        assert executable.run(_feeds(model, {"a": 4}))["y"].shape == (3, 4)
