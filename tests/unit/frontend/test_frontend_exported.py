"""What PyTorch's exporter notes in ONNX files, and what is made of that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from sambac.frontend.exported import take_apart

_PREFIX = "pkg.torch.export"


def parse(text: str) -> ir.Model:
    return ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": 20]> {text}')


def noted(model: ir.Model, signature: str, calls: Mapping[str, str]) -> ir.Model:
    """Return `model` with the notes of an exporter: its signature, and the call of each result."""
    model.graph.metadata_props[f"{_PREFIX}.ExportedProgram.graph_signature"] = signature
    for line in signature.splitlines():
        placeholder, kind, target = line.replace(":", "").split(" ")[:3]
        value = model.graph.initializers.get(target.split("'")[1])
        if value is not None:
            value.metadata_props[f"{_PREFIX}.graph_signature.InputSpec.kind"] = kind
            value.metadata_props["pkg.torch.onnx.original_node_name"] = placeholder
    for node in model.graph:
        call = calls.get(str(node.outputs[0].name))
        if call:
            name, arguments = call.split(" ", 1)
            text = f"%x = call_function[target=torch.ops.{name}](args = {arguments}, kwargs = {{}})"
            node.metadata_props["pkg.torch.onnx.fx_node"] = text
    return model


def test_files_without_notes_stay_as_they_are() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 1}> { y = Mul(x, w) }")
    notes = take_apart(model)
    assert (notes.roles, notes.stops, notes.warnings) == ({}, (), ())


def test_statistics_of_one_constant_are_told_apart_by_their_places() -> None:
    """Two tensors stand for four; without a call that names them nothing can be told."""
    signature = "\n".join(
        f"{kind[0].lower()}_{name}: {kind} target='{name}'"
        for name, kind in {
            "o": "PARAMETER",
            "z": "PARAMETER",
            "s": "PARAMETER",
            "b": "PARAMETER",
            "mean": "BUFFER",
            "var": "BUFFER",
        }.items()
    )
    text = """g (float[2,3] x) => (float[2,3] y)
<float[3] o = {1,1,1}, float[3] z = {0,0,0}>
{ h = LayerNormalization(x, o, z)  y = BatchNormalization(h, o, z, z, o) }"""
    call = "aten.batch_norm (%h, %p_s, %p_b, %b_mean, %b_var, False, 0.1, 1e-05)"
    model = noted(parse(text), signature, {"y": call})
    notes = take_apart(model)
    read = [value.name for value in model.graph.node(1).inputs if value is not None]
    assert read == ["h", "s", "b", "mean", "var"]
    constants = model.graph.initializers
    assert notes.roles == {
        **{constants[name]: "parameter" for name in "ozsb"},
        **{constants[name]: "buffer" for name in ("mean", "var")},
    }
    model = noted(parse(text), signature, {"y": "aten.other (%h, %p_s, %p_b, %b_mean)"})
    assert "'s', 'b' of the exported module" in take_apart(model).warnings[0]


def test_layers_get_their_bias_of_zeros_back() -> None:
    model = parse("""g (float[1,2,4] x) => (float[1,6,6] y)
<float[2,3,3] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}>
{ y = ConvTranspose<group = 2>(x, w) }""")
    signature = "p_w: PARAMETER target='w'\np_b: PARAMETER target='b'"
    take_apart(noted(model, signature, {"y": "aten.convolution (%x, %p_w, %p_b, [1])"}))
    bias = model.graph.node(0).inputs[2]
    assert bias is not None
    assert bias.name == "b"
    assert bias.const_value is not None
    np.testing.assert_array_equal(bias.const_value.numpy(), np.zeros(6))


def test_stops_that_cannot_be_put_back_are_told() -> None:
    text = "g (float[2] x, float[2] h) => (float[2] y) { s = Add(x, h)  t = Mul(s, s)  y = Neg(t) }"
    signature = "p_w: PARAMETER target='w'"
    model = noted(parse(text), signature, {"y": "aten.f (%detach, %detach_1)"})
    assert "detaches detach, detach_1, which" in take_apart(model).warnings[0]
    model = noted(parse(text), signature, {"t": "aten.mul (%s, %detach)"})
    (stop,) = take_apart(model).stops
    product = stop.outputs[0].consumers()[0]
    assert product.op_type == "Mul"
    assert product.inputs[1] is stop.outputs[0]
