"""Optional inputs of open size or of strings, constant strings as outputs, values returned twice:
compiled, stored, loaded and run at every level, beside plain onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import pef
import sambac
import sambarun

LEVELS = ("O0", "O1", "O3")
Z = np.array([-1, 2], np.float32)
Values = dict[str, np.ndarray]


def text(body: str, *initializers: onnx.TensorProto, opset: int = 21) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {body}')
    model.graph.initializer.extend(initializers)
    return model


def strings(*values: str) -> np.ndarray:
    return np.array(values, object)


def default(dtype: int, dims: Sequence[int], values: Sequence[object]) -> onnx.TensorProto:
    return helper.make_tensor("x", dtype, dims, values)


def unknown_rank() -> onnx.ModelProto:
    model = text(
        "(float x, float[2] z) => (float[M] y) { y = Add(x, z) }",
        default(TensorProto.FLOAT, [2], [1, 2]),
    )
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return model


TEXT_DEFAULT = default(TensorProto.STRING, [2], ["ß".encode(), b""])
OPTIONAL = {
    "strings": (
        text(
            "(string[2] x, float[2] z) => (string[2] y, float[2] w) { y = Identity(x) w = Neg(z) }",
            TEXT_DEFAULT,
        ),
        strings("a", "b"),
    ),
    "strings_of_open_shape": (
        text("(string[N] x) => (string[N] y) { y = StringConcat(x, x) }", TEXT_DEFAULT),
        strings("a", "b", "c"),
    ),
    "strings_given_back": (
        text("(string[2] x, float[2] z) => (string[2] x, float[2] y) { y = Neg(z) }", TEXT_DEFAULT),
        strings("a", "b"),
    ),
    "symbolic": (
        text(
            "(float[N, 2] x, float[2] z) => (float[N, 2] y, float[N, 2] x) { y = Add(x, z) }",
            default(TensorProto.FLOAT, [3, 2], range(6)),
        ),
        np.ones((1, 2), np.float32),
    ),
    "unknown_rank": (unknown_rank(), np.array(3, np.float32)),
    "packed": (
        text(
            "(int4[N] x) => (int32[N] y) { y = Cast<to: int = 6>(x) }",
            default(TensorProto.INT4, [3], [1, -2, 3]),
        ),
        None,
    ),
    "empty": (
        text("(float[N] x) => (float[N] y) { y = Neg(x) }", default(TensorProto.FLOAT, [0], [])),
        np.ones(2, np.float32),
    ),
}


@pytest.fixture
def plain() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


@contextmanager
def executable(model: onnx.ModelProto, level: str, folder: Path) -> Iterator[sambarun.Executable]:
    path = folder / f"{level}.pef"
    sambac.compile(model, sambac.CompileOptions(level=level)).save(path)
    pef.verify(path)
    with sambarun.load(path) as loaded:
        yield loaded


def assert_same(found: Values, expected: Sequence[np.ndarray]) -> None:
    for value, wanted in zip(found.values(), expected, strict=True):
        np.testing.assert_array_equal(value, wanted, strict=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", OPTIONAL)
def test_optional_inputs(
    name: str, level: str, tmp_path: Path, plain: onnxruntime.SessionOptions
) -> None:
    """Left out, given, and left out again, when what was given must be forgotten."""
    model, value = OPTIONAL[name]
    session = onnxruntime.InferenceSession(model.SerializeToString(), plain)
    always = {"z": Z} if any(port.name == "z" for port in model.graph.input) else {}
    runs = [always, always if value is None else {**always, "x": value}, always]
    with executable(model, level, tmp_path) as loaded:
        for inputs in runs:
            assert_same(loaded.run(inputs), session.run(None, inputs))


def test_a_default_in_a_result_is_the_callers_own(tmp_path: Path) -> None:
    model, _ = OPTIONAL["strings_given_back"]
    with executable(model, "O3", tmp_path) as loaded:
        loaded.run({"z": Z})["x"][0] = "changed"
        assert loaded.run({"z": Z})["x"].tolist() == ["ß", ""]


TEXT_OUTPUTS = {
    "initializer": text(
        "(float[2] z) => (string[1] s, float[2] y) { y = Neg(z) }",
        helper.make_tensor("s", TensorProto.STRING, [1], ["ß".encode()]),
    ),
    "node": text(
        '(float[2] z) => (string[2] s, float[2] y) { s = Constant<value_strings = ["a", ""]>() '
        "y = Neg(z) }"
    ),
    "nothing_else": text('() => (string s) { s = Constant<value_string = "word">() }'),
    "twice": text(
        '(float[2] z) => (string s, float[2] y, string s) { s = Constant<value_string = "a">() '
        "y = Neg(z) }"
    ),
    "read_too": text(
        '(string[2] x) => (string s, string[2] y) { s = Constant<value_string = "a">() '
        "y = StringConcat(x, s) }"
    ),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", TEXT_OUTPUTS)
def test_constant_strings_as_outputs(
    name: str, level: str, tmp_path: Path, plain: onnxruntime.SessionOptions
) -> None:
    model = TEXT_OUTPUTS[name]
    given = {"z": Z, "x": strings("b", "c")}
    inputs = {port.name: given[port.name] for port in model.graph.input}
    session = onnxruntime.InferenceSession(model.SerializeToString(), plain)
    expected = dict(
        zip([port.name for port in model.graph.output], session.run(None, inputs), strict=True)
    )
    with executable(model, level, tmp_path) as loaded:
        found = loaded.run(inputs)
    assert list(found) == list(expected)
    assert_same(found, list(expected.values()))


# Plain onnxruntime leaves one of two equal results unwritten, so the numbers are spelt out.
IF = "(bool c, float[2] z) => (float[2] a, float[2] b) {{ a, b = If(c) <then_branch = t () => {}, "
IF += "else_branch = e () => (float[2] q, float[2] r) {{ q = Relu(z) r = Neg(z) }}> }}"
RETURNED_TWICE = {
    "operator": (IF.format("(float[2] p, float[2] p) { p = Neg(z) }"), [-Z, -Z]),
    "constant": (
        IF.format("(float[2] p, float[2] p) <float[2] p = {-1, 2}> { }"),
        [Z, Z],
    ),
    "two_levels": (
        IF.format(
            "(float[2] p, float[2] s) { p, s = If(c) <then_branch = t2 () => "
            "(float[2] u, float[2] u) { u = Neg(z) }, else_branch = e2 () => "
            "(float[2] v, float[2] v) { v = Relu(z) }> }"
        ),
        [-Z, -Z],
    ),
    "scan": (
        (
            "(bool c, float[2] z) => (float[2] a, float[1, 2] b, float[1, 2] d) "
            "{ k = Constant<value_ints = [1, 2]>() y = Reshape(z, k) "
            "a, b, d = Scan<num_scan_inputs = 1, body = step (float[2] s, float[2] e) => "
            "(float[2] s, float[2] w, float[2] w) { w = Add(s, e) }>(z, y) }"
        ),
        [Z, 2 * Z[None], 2 * Z[None]],
    ),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", RETURNED_TWICE)
def test_subgraphs_that_return_a_value_twice(name: str, level: str, tmp_path: Path) -> None:
    body, expected = RETURNED_TWICE[name]
    with executable(text(body), level, tmp_path) as loaded:
        assert_same(loaded.run({"c": np.array(True), "z": Z}), expected)
