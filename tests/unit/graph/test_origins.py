"""Origins: modules of operators; from tensors of a model to its PEF, its log and differences."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import pef
from pef.report import render, report
from pef.report.diff import differences
from sambac import CompileOptions, compile
from sambac.graph.origins import MODULE_SCOPES, module_of

ORIGINS = ("bias", "gain", "mean", "scale", "var", "w")


@pytest.fixture
def model() -> onnx.ModelProto:
    """A convolution that is normalised and scaled, and a product with a weight that stays."""
    return onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1,2,4,4] x) => (float[1,3,4,4] y, float[4,4] z)
        <float[3,2,1,1] w = {1,2,3,4,5,6}, float[3] scale = {2,4,3}, float[3] bias = {1,-1,2},
         float[3] mean = {0.5,0.25,1}, float[3] var = {4,16,9},
         float[3,1,1] gain = {2,3,5}, float[4,4] k = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
        {
          c = Conv (x, w)
          n = BatchNormalization (c, scale, bias, mean, var)
          y = Mul (n, gain)
          s = ReduceMean <axes = [0, 1], keepdims = 0> (x)
          z = MatMul (s, k)
        }
        """
    )


def origins_of(program: pef.Program) -> dict[str, tuple[str, ...]]:
    return {symbol.name: symbol.origins for symbol in program.symbols if symbol.origins}


def test_a_folded_convolution_names_what_it_came_from(model: onnx.ModelProto) -> None:
    program = compile(model)
    assert origins_of(program) == {"w_folded": ORIGINS, "w_shift": ORIGINS}
    assert "k" in {symbol.name for symbol in program.symbols}


def test_origins_are_in_the_file_the_report_and_the_log(
    model: onnx.ModelProto, tmp_path: Path
) -> None:
    program = compile(model)
    program.save(tmp_path / "m.pef")
    read = pef.verify(tmp_path / "m.pef")
    assert read.symbols == program.symbols
    rows = report(read)
    assert {row["name"]: tuple(row["origins"]) for row in rows["symbols"] if row["origins"]} == (
        origins_of(program)
    )
    text = "\n".join(render(rows))
    part = text.split("\n\nDerived weights (2;")[1].split("\n\n")[0]
    assert part.count("bias gain mean scale var w") == 2


def test_equal_models_give_equal_files(model: onnx.ModelProto, tmp_path: Path) -> None:
    for name in ("a.pef", "b.pef"):
        compile(model).save(tmp_path / name)
    assert (tmp_path / "a.pef").read_bytes() == (tmp_path / "b.pef").read_bytes()


def test_a_difference_in_origins_is_shown(model: onnx.ModelProto, tmp_path: Path) -> None:
    compile(model).save(tmp_path / "a.pef")
    for node in model.graph.node:
        node.input[:] = ["offset" if name == "mean" else name for name in node.input]
    model.graph.initializer[3].name = "offset"
    compile(model).save(tmp_path / "b.pef")
    with pef.open(tmp_path / "a.pef") as a, pef.open(tmp_path / "b.pef") as b:
        found = {(row.part, row.item, row.field) for row in differences(a, b)}
    assert found == {
        ("producer", "", "source_hash"),
        ("symbols", "w_folded", "origins"),
        ("symbols", "w_shift", "origins"),
    }


def test_what_the_model_names_itself_has_none(model: onnx.ModelProto) -> None:
    del model.graph.node[1:3]
    model.graph.node[0].output[0] = "y"
    assert origins_of(compile(model)) == {}


def test_what_a_model_says_of_origins_itself_is_not_believed(model: onnx.ModelProto) -> None:
    read = ir.from_proto(model)
    read.graph.initializers["k"].metadata_props["origin"] = '["forged"]'
    assert "k" not in origins_of(compile(read, CompileOptions(level="O0")))


@pytest.mark.parametrize(
    ("name", "scopes", "module"),
    [
        ("/layer1/conv/Conv", None, "layer1.conv"),
        ("/Relu", None, ""),
        ("Conv_7", None, ""),
        ("n", "['', 'layer1', 'layer1.conv', 'conv2d']", "layer1.conv"),
        ("n", "['', 'add']", ""),
        ("n", """["it's", 'add']""", "it's"),
        ("/layer1/Conv", "damaged ['", ""),
    ],
)
def test_the_module_of_an_operator(name: str, scopes: str | None, module: str) -> None:
    node = ir.node("Conv", [], name=name)
    if scopes is not None:
        node.metadata_props[MODULE_SCOPES] = scopes
    assert module_of(node) == module
