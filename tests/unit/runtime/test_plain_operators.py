"""What other providers are given in the place of operators that they lack, or read otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import sambarun
from sambarun.sessions import opening, provider
from sambarun.sessions.plain_operators import plainer
from sambarun.sessions.provider import CPU, Provider
from sambarun.sessions.threads import Threads

SHAPES = {"a": (5, 1, 6, 8), "b": (5, 1, 6, 8), "c": (1, 6, 5, 8), "d": (1, 6, 8, 5)}
FEEDS = {
    name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for name, shape in SHAPES.items()
}


def network(product: str) -> onnx.ModelProto:
    inputs = ", ".join(f"float[{','.join(map(str, s))}] {n}" for n, s in SHAPES.items())
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>'
        f"network ({inputs}) => (float[1,6,M,N] y) {{ {product} }}"
    )


@pytest.mark.parametrize(
    "product",
    [
        "y = com.microsoft.FusedMatMul <transBatchA = 1> (a, d)",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transB = 1, alpha = 0.5> (a, c)",
        "y = com.microsoft.FusedMatMul <transBatchB = 1> (d, b)",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1, transB = 1> (a, b)",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transA = 1, transBatchB = 1> (a, b)",
        "y = com.microsoft.FusedMatMul <transBatchA = 0, transBatchB = 0> (c, d)",
        """t = Constant <value = bool {1}> ()
           y = If (t) <
               then_branch = one () => (float[1,6,M,N] p)
                   { p = com.microsoft.FusedMatMul <transBatchA = 1> (a, d) },
               else_branch = two () => (float[1,6,M,N] q) { q = MatMul (c, d) }
           >""",
    ],
)
def test_transposes_stand_for_transposed_batches(product: str) -> None:
    model = network(product)
    (plain,) = plainer(model.SerializeToString())
    exact, found = (
        onnxruntime.InferenceSession(each, providers=[CPU.name]).run(None, FEEDS)[0]
        for each in (model.SerializeToString(), plain)
    )
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
    left = onnx.printer.to_text(onnx.load_from_string(plain))
    assert "transBatchA: int = 1" not in left
    assert "transBatchB: int = 1" not in left


ROTARY = {
    "x": (2, 3, 5, 8),
    "flat": (2, 5, 24),
    "c": (9, 4),
    "s": (9, 4),
}
TURNED = {
    name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    for name, shape in ROTARY.items()
}


def rotary(attributes: str, operand: str = "x", body: str = "", kind: str = "float") -> bytes:
    shapes = {name: ",".join(map(str, shape)) for name, shape in ROTARY.items()}
    tables = f"{kind}[{shapes['c']}] c, {kind}[{shapes['s']}] s"
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]> network '
        f"({kind}[{shapes[operand]}] x, int64[1] first, {tables}) => ({kind}[{shapes[operand]}] y) "
        + (body or f"{{ y = com.microsoft.RotaryEmbedding {attributes} (x, first, c, s) }}")
    )
    return model.SerializeToString()


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("kind", ["float", "float16"])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_parts_stand_for_a_rotary_embedding(interleaved: int, kind: str, first: int) -> None:
    model = rotary(f"<interleaved = {interleaved}>", kind=kind)
    same, plain = plainer(model)
    assert same == model
    assert b"RotaryEmbedding" not in plain
    dtype = {"float": np.float32, "float16": np.float16}[kind]
    feeds = {name: TURNED[name].astype(dtype) for name in "xcs"}
    feeds["first"] = np.array([first], np.int64)
    exact, found = (
        onnxruntime.InferenceSession(each, providers=[CPU.name]).run(None, feeds)[0]
        for each in (model, plain)
    )
    assert found.dtype == exact.dtype
    digits = np.finfo(dtype).eps
    np.testing.assert_allclose(found, exact, rtol=8 * digits, atol=8 * digits)


def test_parts_stand_for_rotary_embeddings_of_branches() -> None:
    branches = (
        f"{side} = {side} () => ({kind} {side}y) {{ {side}y = {made} }}"
        for side, kind, made in (
            ("then_branch", "float[2,3,5,8]", "com.microsoft.RotaryEmbedding (x, first, c, s)"),
            ("else_branch", "float[2,3,5,8]", "Neg (x)"),
        )
    )
    body = f"{{ t = Constant <value = bool {{1}}> () y = If (t) <{', '.join(branches)}> }}"
    *_, plain = plainer(rotary("", body=body))
    assert b"RotaryEmbedding" not in plain


@pytest.mark.parametrize(
    "attributes",
    ["<num_heads = 3, rotary_embedding_dim = 4>", "<is_packed_batching = 1>", "<scale = 2.0>"],
)
def test_rotary_embeddings_of_other_forms_stay(attributes: str) -> None:
    *_, plain = plainer(rotary(attributes))
    assert b"RotaryEmbedding" in plain


def test_rotary_embeddings_without_an_axis_of_heads_are_refused_not_misread() -> None:
    *_, plain = plainer(rotary("", "flat"))
    with pytest.raises(Exception, match="perm"):
        onnxruntime.InferenceSession(plain, providers=[CPU.name])


def test_positions_of_each_example_are_refused_not_misread() -> None:
    body = "{ y = com.microsoft.RotaryEmbedding (x, each, c, s) }"
    *_, plain = plainer(rotary("", body=f"<int64[2,5] each = {{{', '.join('0' * 10)}}}> {body}"))
    with pytest.raises(Exception, match="rank"):
        onnxruntime.InferenceSession(plain, providers=[CPU.name])


def test_what_a_provider_lacks_is_spelled_out_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lacking(Provider):
        is_processor = False

        def open(self, model: bytes, options: Any) -> Any:
            if b"RotaryEmbedding" in model:
                raise RuntimeError("no RotaryEmbedding here")
            return self._open(model, options)

    monkeypatch.setattr(provider, "_WITHOUT_OPTIONS", ())
    tuning = opening.Tuning(Threads(1), provider=Lacking(CPU.name))
    session = opening.create_session(rotary(""), "", tuning)
    feeds = {name: TURNED[name] for name in "xcs"} | {"first": np.zeros(1, np.int64)}
    (exact,) = onnxruntime.InferenceSession(rotary(""), providers=[CPU.name]).run(None, feeds)
    np.testing.assert_allclose(session.run(None, feeds)[0], exact, rtol=1e-6, atol=1e-6)
    with pytest.raises(opening.IncompleteError, match="no RotaryEmbedding here"):
        opening.create_session(rotary("<is_packed_batching = 1>"), "", tuning)


def test_what_a_provider_fails_to_make_ready_stays_on_the_processor(
    monkeypatch: pytest.MonkeyPatch, spec_type: Any, sec_type: Any, value_type: Any
) -> None:
    class Failing(Provider):
        is_processor = False

        def open(self, model: bytes, options: Any) -> Any:
            if b"Relu" in model:
                raise RuntimeError("Exception while Reading network: no such shape")
            return self._open(model, options)

    monkeypatch.setattr(provider, "_WITHOUT_OPTIONS", ())
    node = helper.make_node
    program = spec_type(
        sections=[
            sec_type([node("Neg", ["x"], ["a"])], ["x"], ["a"]),
            sec_type([node("Relu", ["a"], ["y"])], ["a"], ["y"]),
        ],
        values={name: value_type() for name in "xay"},
        inputs=["x"],
        outputs=["y"],
    ).program()
    with sambarun.load(program, provider=Failing(CPU.name, {"a": "1"})) as executable:
        found = executable.run({"x": np.float32([1, -2, 3, -4])})["y"]
    np.testing.assert_array_equal(found, np.float32([0, 2, 0, 4]))
