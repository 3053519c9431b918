"""Models whose inputs or outputs are maps, at every level, beside plain onnxruntime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from commands import sambac as sambac_here
from onnx import TensorProto, helper

import pef
import sambac
import sambarun
from sambac import CompileOptions

ML = "ai.onnx.ml"
FEATURES = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
WORDS = {"a": 1.5, "c": -2.0}
NUMBERS = {1: 1.5, 3: -2.0}
KEYS = {
    "strings": (TensorProto.STRING, ["a", "b", "c"]),
    "int64s": (TensorProto.INT64, [7, 8, 9]),
}


def map_of(key: int, value: int = TensorProto.FLOAT) -> onnx.TypeProto:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    graph = helper.make_graph(nodes, "maps", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def undeclared(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def classifier(keys: str, *, declared: bool = True) -> onnx.ModelProto:
    """Return what exporters of classifiers write: labels, and a map of scores for each row."""
    key, classes = KEYS[keys]
    labels = "ints" if keys == "int64s" else keys
    weights = {"coefficients": np.linspace(-1, 1, 9).tolist(), "intercepts": [0.0, 0.1, 0.2]}
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "scores"],
            domain=ML,
            post_transform="SOFTMAX",
            **{f"classlabels_{labels}": classes},
            **weights,
        ),
        helper.make_node(
            "ZipMap", ["scores"], ["y"], domain=ML, **{f"classlabels_{keys}": classes}
        ),
    ]
    scores = helper.make_value_info("y", helper.make_sequence_type_proto(map_of(key)))
    return model(
        nodes,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [
            helper.make_tensor_value_info("label", key, ["rows"]),
            scores if declared else undeclared("y"),
        ],
    )


def dictionary(op_type: str, key: int, **attributes: object) -> onnx.ModelProto:
    """Return a model that makes a tensor of a map, and something of that."""
    nodes = [
        helper.make_node(op_type, ["d"], ["v"], domain=ML, **attributes),
        helper.make_node("Exp", ["v"], ["y"]),
    ]
    return model(nodes, [helper.make_value_info("d", map_of(key))], [undeclared("y")])


def both_ways() -> onnx.ModelProto:
    """Return a model that reads a map twice, once inside of a branch, and gives maps."""
    vector = [
        helper.make_node("DictVectorizer", ["d"], [name], domain=ML, string_vocabulary=words)
        for name, words in (("v", ["a", "b", "c"]), ("w", ["c", "b", "a"]))
    ]
    then, other = (
        helper.make_graph([node], "branch", [], [undeclared(node.output[0])]) for node in vector
    )
    nodes = [
        helper.make_node("DictVectorizer", ["d"], ["u"], domain=ML, string_vocabulary=["a", "c"]),
        helper.make_node("If", ["flag"], ["b"], then_branch=then, else_branch=other),
        helper.make_node("Concat", ["u", "b"], ["all"], axis=1),
        helper.make_node("ZipMap", ["all"], ["y"], domain=ML, classlabels_int64s=[1, 2, 3, 4, 5]),
    ]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    given = [helper.make_value_info("d", map_of(TensorProto.STRING)), flag]
    return model(nodes, given, [undeclared("y"), undeclared("u")])


CASES = {
    "int64 keys": (classifier("int64s"), {"x": FEATURES}),
    "string keys": (classifier("strings"), {"x": FEATURES}),
    "undeclared": (classifier("strings", declared=False), {"x": FEATURES}),
    "words": (
        dictionary("DictVectorizer", TensorProto.STRING, string_vocabulary=["a", "b", "c"]),
        {"d": WORDS},
    ),
    "numbers": (
        dictionary("DictVectorizer", TensorProto.INT64, int64_vocabulary=[3, 2, 1]),
        {"d": NUMBERS},
    ),
    "CastMap dense": (dictionary("CastMap", TensorProto.INT64), {"d": NUMBERS}),
    "CastMap sparse": (
        dictionary("CastMap", TensorProto.INT64, map_form="SPARSE", max_map=6),
        {"d": NUMBERS},
    ),
    "both ways": (both_ways(), {"d": WORDS, "flag": np.array(False)}),
}


@pytest.mark.parametrize("link", [True, False], ids=["linked", "unlinked"])
@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize("case", CASES)
def test_maps_are_what_onnxruntime_makes_of_them(
    case: str, level: str, link: bool, tmp_path: Path
) -> None:
    proto, inputs = CASES[case]
    before = proto.SerializeToString(deterministic=True)
    program = sambac.compile(proto, CompileOptions(level=level))
    assert proto.SerializeToString(deterministic=True) == before
    program.save(tmp_path / "maps.pef")
    pef.verify(tmp_path / "maps.pef")
    session = onnxruntime.InferenceSession(before)
    names = [output.name for output in session.get_outputs()]
    with sambarun.load(tmp_path / "maps.pef", link=link) as executable:
        executable.run(inputs)
        results = executable.run(inputs)
    assert list(results) == names
    for came, expected in zip(results.values(), session.run(None, inputs), strict=True):
        if isinstance(expected, list):
            assert came == expected
        else:
            np.testing.assert_array_equal(came, expected)


def test_the_program_spells_map_types_as_onnxruntime_does() -> None:
    program = sambac.compile(both_ways())
    maps = [symbol for symbol in program.symbols if "map(" in symbol.type]
    assert {symbol.type for symbol in maps} == {
        "map(string,tensor(float))",
        "seq(map(int64,tensor(float)))",
    }
    assert {(symbol.dtype, symbol.shape, symbol.allocation) for symbol in maps} == {(0, None, None)}
    assert [section.call_form for section in program.programs] == [pef.CallForm.HOST]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.ones(3, np.float32), "Input 'd' is a ndarray; map(string,tensor(float)) was expected."),
        ([WORDS], "Input 'd' is a list; map(string,tensor(float)) was expected."),
        ({}, "Input 'd' is an empty map, which onnxruntime does not take; "),
        ({"a": 1.0, 2: 3.0}, "Input 'd' has the key 2; "),
        ({"a": "b"}, "Input 'd' maps 'a' to a str; "),
    ],
)
def test_what_is_no_such_map(given: object, says: str) -> None:
    with (
        sambarun.load(sambac.compile(CASES["words"][0])) as executable,
        pytest.raises(sambarun.RunError) as caught,
    ):
        executable.run({"d": given})
    assert str(caught.value).startswith(says)


def test_maps_that_python_cannot_give_to_onnxruntime() -> None:
    proto = dictionary("CastMap", TensorProto.INT64)
    proto.graph.input[0].type.CopyFrom(map_of(TensorProto.INT64, TensorProto.STRING))
    with (
        sambarun.load(sambac.compile(proto)) as executable,
        pytest.raises(sambarun.RunError, match="takes only maps to tensor\\(float\\)"),
    ):
        executable.run({"d": {1: "2"}})


def test_maps_on_the_command_line(tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        code = "import sys; from samba_cli.sambarun import main; sys.argv[0] = 'sambarun'; main()"
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for name, case in (("scores", "string keys"), ("words", "words")):
        onnx.save(CASES[case][0], tmp_path / f"{name}.onnx")
        target = tmp_path / f"{name}.pef"
        made = sambac_here("compile", f"{name}.onnx", "-O0", "-o", target, cwd=tmp_path)
        assert made.returncode == 0
        assert sambac_here("verify", target, cwd=tmp_path).returncode == 0
    np.save(tmp_path / "x.npy", FEATURES)
    scores = tmp_path / "scores.pef", "--input", f"x=@{tmp_path / 'x.npy'}"
    shown = run(*scores).stdout
    assert "sequence of 4 maps" in shown
    assert "{'a': " in shown
    stored = run(*scores, "--output", tmp_path / "out.npz")
    assert stored.returncode == 0
    assert "out.npz: label, y.0.keys, y.0.values, y.1.keys" in stored.stdout
    with np.load(tmp_path / "out.npz") as found:
        assert found["y.0.keys"].tolist()[0] == "a"
        assert found["y.0.values"].shape == found["y.0.keys"].shape
    compared = run(*scores, "--expect", f"y=@{tmp_path / 'x.npy'}")
    assert compared.returncode == 1
    assert compared.stdout == "y: sequence of 4 maps came, an array was expected\n"
    refused = run(tmp_path / "words.pef", "--input", "d=ones")
    assert refused.stderr.startswith("Error: Input 'd' is a map(string,tensor(float)).\nNo array")
