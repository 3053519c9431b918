"""What providers that have no Attention are given in its place."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from sambarun.sessions.plain_operators import plainer
from sambarun.sessions.provider import CPU

rng = np.random.default_rng(2)
HEADS = 4


def attention(attributes: str, groups: int = 4, mask: str = "") -> bytes:
    shapes = f"float[2,5,32] q, float[2,7,{groups * 8}] k, float[2,7,{groups * 6}] v"
    operands = "q, k, v"
    if mask:
        shapes, operands = f"{shapes}, float[{mask}] m", "q, k, v, m"
    counts = f"q_num_heads = {HEADS}, kv_num_heads = {groups}"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 23]> network ({shapes}) => (float[2,5,24] y)'
        f" {{ y = Attention <{counts}{attributes}> ({operands}) }}"
    )
    return model.SerializeToString()


def agree(model: bytes, plain: bytes, hidden: float = 0.0) -> None:
    sessions = [onnxruntime.InferenceSession(each, providers=[CPU.name]) for each in (model, plain)]
    feeds = {
        port.name: rng.standard_normal(port.shape).astype(np.float32)
        for port in sessions[0].get_inputs()
    }
    if hidden:
        feeds["m"][..., 1, :] = hidden
        feeds["m"][..., 2, 3:] = hidden
    exact, found = (session.run(None, feeds)[0] for session in sessions)
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("causal", ["", ", is_causal = 1", ", is_causal = 0"])
@pytest.mark.parametrize("mask", ["", "5,7", "2,1,5,7", "1,4,5,7"])
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_parts_stand_for_an_attention(groups: int, mask: str, causal: str) -> None:
    model = attention(f", scale = 0.3{causal}", groups, mask)
    same, plain = plainer(model)
    assert same == model
    assert b"Attention" not in plain
    agree(model, plain)


def test_queries_that_see_no_key_have_zeros() -> None:
    model = attention(", scale = 0.3", mask="2,1,5,7")
    *_, plain = plainer(model)
    agree(model, plain, -np.inf)


@pytest.mark.parametrize("attributes", ["", ", scale = 0.3, softcap = 2.0"])
def test_attentions_of_other_forms_stay(attributes: str) -> None:
    *_, plain = plainer(attention(attributes))
    assert b"Attention" in plain


@pytest.mark.parametrize("interleaved", [0, 1])
def test_parts_stand_for_a_rotary_embedding_of_tokens(interleaved: int) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 23, "com.microsoft" : 1]>
        network (float[2,5,24] x, float[9,4] c, float[9,4] s) => (float[2,5,24] y)
        <int64[1] first = {{3}}> {{
            y = com.microsoft.RotaryEmbedding <num_heads = 3, interleaved = {interleaved}>
                (x, first, c, s)
        }}"""
    ).SerializeToString()
    *_, plain = plainer(model)
    assert b"RotaryEmbedding" not in plain
    agree(model, plain)
