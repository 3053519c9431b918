"""`sambac tune` and `sambac compile --tuning`, as a user meets them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser
from tuning_files import formulations, written

import pef
import sambac as compiler
import sambarun as runtime
from pef.report import report
from samba_cli.tuning import OPTIONS
from sambac.option import Scope, options_of
from sambac.tuning_file import HostTuning, MeasuredHost, read_tuning, tuning_text

_MODEL = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[2,8,5,5] x) => (float loss)
<float[8,8,3,3] w = {WEIGHTS}, float[8,8,3,3] v = {WEIGHTS}>
{
  a = Conv <pads = [1, 1, 1, 1]> (x, w)
  b = Conv <pads = [1, 1, 1, 1]> (a, v)
  loss = ReduceMean <keepdims = 0> (b)
}
"""
_LAYER = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[16,200] x) => (float loss)
<float[192,200] w = {WEIGHTS}>
{
  y = Gemm <transB = 1> (x, w)
  loss = ReduceMean <keepdims = 0> (y)
}
"""
_SIZES = "image 2x8x5x5, signal 2x8x5x5, kernel 3x3, pads 1x1"
_PRODUCT = """
[[choice]]
operator = "matrix product"
dtype = "float32"
sizes = "rows 16, terms 200, columns 192, turned 0x1"
chosen = "transposed product"
"""
_ENTRY = f"""
[[choice]]
operator = "filter gradient"
dtype = "float32"
sizes = "{_SIZES}"
chosen = "tap by tap"
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = ", ".join(f"{0.01 * (n % 7 - 3):.2f}" for n in range(576))
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(_MODEL.replace("WEIGHTS", weights)), path)
    return path


def test_what_is_measured_is_what_a_compilation_takes(
    sambac: Callable, model: Path, tmp_path: Path
) -> None:
    target, out = tmp_path / "t.toml", tmp_path / "net.pef"
    words = (model, "--train")
    result = sambac("tune", *words, "-o", target, "--threads", "1", "--seconds", "0.2")
    assert (result.code, result.err) == (0, "")
    tuning = read_tuning(target)
    assert [each.question.operator for each in tuning.choices].count("filter gradient") == 1
    assert f"filter gradient: {_SIZES} (2x)" in result.out
    assert all(each.chosen in result.out for each in tuning.choices)
    assert sambac("compile", *words, "--tuning", target, "-o", out).code == 0
    found = formulations(out)
    for each in tuning.choices:
        assert found[each.question.operator] == (each.chosen, "measurement")
        assert each.chosen in each.times
    assert tuning.host.threads == 1
    assert "onnxruntime" in tuning.libraries
    shown = sambac("inspect", out)
    assert "measurement" in shown.out
    assert tuning_text(tuning) == target.read_text("utf-8")


def test_a_file_decides_alone(sambac: Callable, model: Path, tmp_path: Path) -> None:
    """The same file makes the same bytes; another choice other operators and the same numbers."""
    plain, first, again = (tmp_path / name for name in ("plain.pef", "1.pef", "2.pef"))
    other = _ENTRY.replace("2x8x5x5", "2x8x7x7")
    path = written(tmp_path, "version = 1\n" + _ENTRY + other)
    assert sambac("compile", model, "--train", "-o", plain).code == 0
    for target in (first, again):
        assert sambac("compile", model, "--train", "--tuning", path, "-o", target).code == 0
    assert first.read_bytes() == again.read_bytes()
    assert formulations(plain)["filter gradient"][1] == "guess"
    assert formulations(first)["filter gradient"] == ("tap by tap", "measurement")
    log = first.with_name("1.pef.log").read_text("utf-8")
    assert "tuning: 1 of 2 entries used; " in " ".join(log.split())
    with pef.open(first) as file:
        programs = file.program.programs
        portable = [programs[section.variants[-1].program] for section in file.program.sections]
    assert not any(program.requires for program in portable)
    assert {program.requires for program in programs} == {(), ("nchwc8",)}
    x = np.random.default_rng(0).standard_normal((2, 8, 5, 5), dtype=np.float32)
    gradients = []
    for target in (plain, first):
        with runtime.load(target) as executable:
            executable.run({"x": x}, section_types="FWD", train=True)
            gradients.append(executable.run({"x": x}, section_types="BCKWD")["w__grad"])
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_products_are_written_in_programs_for_processors(sambac: Callable, tmp_path: Path) -> None:
    """Another choice leaves what a device runs as it was, and what a step computes."""
    net = tmp_path / "net.onnx"
    weights = ", ".join(f"{0.01 * (n % 7 - 3):.2f}" for n in range(192 * 200))
    onnx.save(parser.parse_model(_LAYER.replace("WEIGHTS", weights)), net)
    other = _PRODUCT.replace("transposed product", "as it lies")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((16, 200), dtype=np.float32)}
    portable, gradients = [], []
    for chosen, entry in (("transposed product", _PRODUCT), ("as it lies", other)):
        path, out = written(tmp_path, "version = 1" + entry), tmp_path / "net.pef"
        assert sambac("compile", net, "--train", "--tuning", path, "-o", out).code == 0
        with pef.open(out) as file:
            found, sections = file.program, file.program.sections
            last = [section.variants[-1].program for section in sections]
            portable.append([bytes(file.bytes(found.programs[each].graph)) for each in last])
            rows = report(found)["formulations"]
        layer = {row["sizes"]: row for row in rows}
        forth = layer["rows 16, terms 200, columns 192, turned 0x1"]
        back = layer["rows 192, terms 16, columns 200, turned 1x0"]
        assert (forth["formulation"], forth["by"]) == (chosen, "measurement")
        assert back["by"] == "guess"
        assert forth["of"] == back["of"], "operators of the model"
        with runtime.load(out, threads=1) as executable:
            executable.run(feeds, section_types="FWD", train=True)
            gradients.append(executable.run(feeds, section_types="BCKWD")["w__grad"])
    assert portable[0] == portable[1]
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-6)


def test_an_inference_program_has_no_use_for_gradients(
    sambac: Callable, model: Path, tmp_path: Path
) -> None:
    path, out = written(tmp_path, "version = 1\n" + _ENTRY), tmp_path / "net.pef"
    assert sambac("compile", model, "--tuning", path, "-o", out).code == 0
    result = sambac("tune", model, "-o", tmp_path / "none.toml")
    assert (result.code, result.err) == (0, "")
    assert "0 choices measured" in result.out
    assert "Nothing to choose" in result.out
    assert read_tuning(tmp_path / "none.toml").choices == ()
    assert "tuning: 0 of 1 entry used" in Path(f"{out}.log").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "version is missing"),
        ('version = "1"', "its version is '1', this sambac knows 1"),
        ("version = 2", "its version is 2, this sambac knows 1"),
        ("version = true", "version is to be a whole number"),
        ("version = 1\nhots = {}", "there is no field 'hots' (did you mean 'host'?)"),
        ("version = 1\n[host]\ncores = 'two'", "host: cores is to be a whole number"),
        ("version = 1\n[host]\ncore = 2", "host: there is no field 'core' (did you mean 'cores'?)"),
        ("version = 1\n[libraries]\nnumpy = 2", "libraries is to be a table of texts"),
        ("version = 1\nchoice = 3", "choice is to be tables, [[choice]]"),
        ("version = 1" + _ENTRY.replace("filter gradient", "filter gradients"),
         "'filter gradients' is not known (did you mean 'filter gradient'?)"),
        ("version = 1" + _ENTRY.replace("tap by tap", "tap by tab"),
         "choice 1: filter gradient 'tap by tab' is not known (did you mean 'tap by tap'?)"),
        ("version = 1" + _ENTRY.replace("tap by tap", "no columns"),
         "'no columns' does not fit; choose 'runs of images' or"),
        ("version = 1" + _ENTRY.replace("float32", "float31"), "did you mean 'float32'?"),
        ("version = 1" + _PRODUCT.replace("float32", "float64"), "for float64 does nothing"),
        ("version = 1" + _ENTRY.replace("float32", "bfloat16"), "for float32 alone, which 16-bit"),
        ("version = 1" + _ENTRY.replace("kernel", "kernels"), "(did you mean 'kernel'?)"),
        ("version = 1" + _ENTRY.replace("kernel 3x3", "kernel 3x"), "'kernel 3x' is no name with"),
        ("version = 1" + _ENTRY.replace("kernel 3x3", "kernel 3"), "its sizes are not those of"),
        ("version = 1" + _ENTRY.replace("kernel 3x3", "kernel 0x3"), "sizes: a size is 0"),
        ("version = 1" + _ENTRY.replace("pads", "kernel"), "'kernel' is given twice"),
        ("version = 1" + _ENTRY + "speed = 1", "there is no field 'speed'"),
        ("version = 1" + _ENTRY + "count = -1", "count is to be a whole number"),
        ("version = 1" + _ENTRY + "times = { 'tap by tap' = nan }", "times is to be a table"),
        ("version = 1" + _ENTRY + "times = { 'tap by tab' = 1 }", "(did you mean 'tap by tap'?)"),
        ("version = 1" + _ENTRY + "guess = 'tap by tab'", "(did you mean 'tap by tap'?)"),
        ("version = 1" + _ENTRY + "times = { 'tap by tap' = 1" + "0" * 400 + " }", "times is to"),
        ("version = 1" + _ENTRY.replace("3x3", "3x" + "3" * 19), "is no name with sizes"),
        ("version = 1" + _ENTRY + _ENTRY, "is there twice"),
        ("version = 1" + _PRODUCT.replace("rows 16, ", ""), "not one each of rows, terms and col"),
        ("version = 1" + _PRODUCT.replace("rows 16", "rows 4x4"), "not one each of rows, term"),
        ("version = 1" + _PRODUCT.replace("rows 16", "rows 0"), "choice 1: sizes: a size is 0"),
        ("version = 1" + _PRODUCT.replace("0x1", "0x2"), "turned is 1 or 0 for each of two opera"),
        ("version = 1" + _PRODUCT.replace("0x1", "1"), "turned is 1 or 0 for each of two operands"),
        ("version = 1" + _PRODUCT.replace("rows 16", "rows 2"),
         "'transposed product' does not fit; choose 'as it lies'"),
        ("version = 1\n[[choice]]", "choice 1: operator is missing; choice 1: dtype is missing"),
        ("version = ", "not a valid TOML file"),
        ("[" * 5000, "not a valid TOML file"),
    ],
)  # fmt: skip
def test_damaged_files_are_a_sentence(
    text: str, said: str, sambac: Callable, model: Path, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    result = sambac("compile", model, "--train", "--tuning", path, "-o", tmp_path / "net.pef")
    assert result.code == 2
    assert said in result.err
    assert "host.toml" in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "net.pef").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tune", "--threads", "0"), "threads"),
        (("tune", "--threads", "257"), "'--threads': 257 is not in the range 1<=x<=256"),
        (("tune", "--seconds", "0"), "'--seconds': 0.0 is not in the range x>0"),
        (
            ("tune", "--precision", "int8", "--calibrate", "a.toml", "-o", "a.toml"),
            "a.toml is the input",
        ),
        (("tune", "--fp16"), "No such option '--fp16'; see --precision."),
        (("tune", "--tuning", "x"), "No such option"),
        (("tune", "-o", "net.onnx"), "net.onnx is the input"),
        (("tune", "-o", "w.onnx"), "w.onnx would be an ONNX model by its name, and a file of sett"),
        (("compile", "-o", "w.NPZ"), "w.NPZ would be a file of arrays by its name, and a PEF is "),
        (("tune", "--optimizer", "sgd:lr=0.1"), "add --train"),
        (("compile", "--tuning", "none.toml"), "none.toml: cannot read the tuning file: No such"),
        (("compile", "--tuning", "."), "cannot read the tuning file: Is a directory"),
        (("compile", "--tuning", "/dev/null"), "cannot read the tuning file: it is a device"),
        (("compile", "--number-rules", "/dev/null"), "it is a device"),
        (("compile", "--fusion-rules", "/dev/null", "-O1"), "it is a device"),
        (("compile", "--tuning", "net.onnx"), "a tuning file is a TOML file"),
        (("compile", "--tuning", "a.toml", "-o", "a.toml"), "a.toml is the input"),
    ],
)
def test_wrong_words_are_told(
    words: tuple[str, ...],
    said: str,
    sambac: Callable,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(model.parent)
    Path("a.toml").write_text("version = 1\n", "utf-8")
    verb, *others = words
    result = sambac(verb, model.name, *others)
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_tune_has_the_options_that_change_operators() -> None:
    known = options_of(compiler.CompileOptions)
    wanted = {
        name
        for name, each in known.items()
        if each.spelling and each.scope is not Scope.PROGRAM and name != "tuning"
    }
    assert set(OPTIONS) == wanted


def test_python_mirrors_the_command(model: Path, tmp_path: Path) -> None:
    given = inspect.signature(compiler.tune).parameters
    assert [*given][:5] == [*inspect.signature(compiler.compile).parameters]
    options = compiler.CompileOptions(train=True)
    stages: list[str] = []
    tuning = compiler.tune(model, options, stages.append, threads=1, seconds=0.05)
    assert isinstance(tuning, HostTuning)
    assert "differentiate" in stages
    tuning.save(tmp_path / "t.toml")
    assert read_tuning(tmp_path / "t.toml").chosen == tuning.chosen
    with pytest.raises(compiler.CompileError, match="tune measures anew"):
        compiler.tune(model, compiler.CompileOptions(tuning="t.toml"))


def test_entries_say_sizes_in_any_words_that_mean_them(tmp_path: Path) -> None:
    usual = _ENTRY.replace("pads 1x1", "strides 1x1, group 1, pads 1x1")
    (question,) = read_tuning(written(tmp_path, "version = 1" + usual)).chosen
    assert question.sizes == _SIZES
    assert ir.DataType.FLOAT.name.lower() in question.dtype


def test_any_text_comes_back_from_a_file(tmp_path: Path) -> None:
    odd = 'a\x7f "\\\n \N{GRINNING FACE}'
    tuning = HostTuning((), MeasuredHost(odd, features=(odd,)), {"a.b": odd, odd: "1", "": ""})
    assert read_tuning(written(tmp_path, "\ufeff" + tuning_text(tuning))) == tuning
