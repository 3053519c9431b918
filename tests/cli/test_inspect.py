"""`sambac inspect`, `verify`, `diff` and `extract`: looking into PEFs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import pef
from pef.report import report


def test_json_is_the_report(sambac: Callable, pef_file: Path) -> None:
    result = sambac("inspect", pef_file, "--json")
    assert result.code == 0
    size = pef_file.stat().st_size
    expected = report(pef.verify(pef_file), {"name": "layer.pef", "bytes": size})
    assert json.loads(result.out) == expected


def test_text_has_the_tables(sambac: Callable, pef_file: Path) -> None:
    out = sambac("inspect", pef_file).out
    assert out.startswith("layer")
    for title in ("Compilation", "Regions", "Sections (3;", "Schedule (3 calls)", "Symbols ("):
        assert f"\n\n{title}" in out
    assert "\x1b" not in out


def test_inspect_needs_no_compiler(pef_file: Path) -> None:
    code = (
        "import sys; from samba_cli.sambac import main\n"
        "try: main()\n"
        "finally: print([n for n in ('onnx', 'onnx_ir', 'networkx', 'torch', 'onnxruntime')"
        " if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(pef_file)], capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_leaves_is_no_error(pef_file: Path) -> None:
    command = f"{sys.executable} -c 'from samba_cli.sambac import main; main()' inspect {pef_file}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_verify_says_what_it_checked(sambac: Callable, pef_file: Path) -> None:
    result = sambac("verify", pef_file)
    assert result.code == 0
    first, *others = result.out.splitlines()
    assert first == f"{pef_file} is intact. Checked:"
    assert "2 segments" in others[0]
    assert "3 sections" in others[2]
    assert "lifetimes and addresses" in others[3]
    assert others[4:] == [
        "  plans    3 fusion groups, sections and memory, rebuilt from the operators;",
        "           limits of sn40l",
    ]
    assert max(map(len, others)) <= 80


def test_verify_finds_a_wrong_plan_in_an_undamaged_file(
    sambac: Callable, model: Path, tmp_path: Path
) -> None:
    """Every hash and reference is right, but Relu stands between the operators of one group."""
    path = tmp_path / "wrong.pef"
    sambac("compile", model, "-o", path)
    program = pef.verify(path)
    (section,) = program.sections
    matmul, relu, softmax = (op for group in section.groups for op in group.operators)
    groups = (pef.FusionGroup("outer", (matmul, softmax)), pef.FusionGroup("inner", (relu,)))
    replace(program, sections=(replace(section, groups=groups),)).save(path)
    assert pef.verify(path).sections[0].groups == groups
    result = sambac("verify", path)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(
        f"Error: {path} is undamaged, but its plans are wrong: groups wait"
    )


def test_verify_says_which_limits_it_does_not_know(
    sambac: Callable, model: Path, tmp_path: Path
) -> None:
    built_in = resources.files("sambac.arch").joinpath("data", "sn40l.toml").read_text("utf-8")
    arch = tmp_path / "mine.toml"
    arch.write_text(built_in.replace('name = "sn40l"', 'name = "mine"'), encoding="utf-8")
    path = tmp_path / "mine.pef"
    assert sambac("compile", model, "--arch", arch, "-o", path).code == 0
    result = sambac("verify", path)
    assert result.code == 0
    assert result.out.endswith(" limits of mine not known here\n")


@pytest.mark.parametrize("verb", ["inspect", "verify"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"", ""),
        (lambda data: b"PK\x03\x04" + bytes(5000), ""),
        (lambda data: data[:-1], ""),
        (lambda data: data[: len(data) // 2], ""),
        (lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:], ""),
    ],
    ids=["empty", "no PEF", "a byte short", "half", "a bit in the head"],
)
def test_damaged_files(
    sambac: Callable, pef_file: Path, verb: str, damage: Callable, said: str
) -> None:
    pef_file.write_bytes(damage(pef_file.read_bytes()))
    result = sambac(verb, pef_file)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"Error: {pef_file}")
    assert "Traceback" not in result.err


def test_damaged_weights_are_found_by_verify(sambac: Callable, pef_file: Path) -> None:
    data = bytearray(pef_file.read_bytes())
    data[-1] ^= 0x40
    pef_file.write_bytes(data)
    result = sambac("verify", pef_file)
    assert result.code == 2
    assert "weights" in result.err


def test_a_newer_format_is_named(sambac: Callable, pef_file: Path) -> None:
    from pef import container

    data = bytearray(pef_file.read_bytes())
    header = container.parse_header(memoryview(data))
    assert header.version == pef.FORMAT_VERSION
    major, minor = header.version
    old = np.array([major, minor], "<u2").tobytes()
    at = bytes(data[:128]).index(old, 12)
    data[at : at + 4] = np.array([major + 7, minor], "<u2").tobytes()
    pef_file.write_bytes(data)
    result = sambac("inspect", pef_file)
    assert result.code == 2
    assert f"{major + 7}.{minor}" in result.err


def test_a_missing_file(sambac: Callable, tmp_path: Path) -> None:
    result = sambac("inspect", tmp_path / "no.pef")
    assert result.code == 2
    assert "no.pef cannot be read: No such file or directory" in result.err


def test_verbose_shows_the_traceback(sambac: Callable, tmp_path: Path) -> None:
    result = sambac("inspect", "-v", tmp_path / "no.pef")
    assert result.code == 2
    assert "Traceback" in result.err
    assert result.err.splitlines()[-1].startswith("Error: ")


def test_internal_errors_have_their_own_code(
    sambac: Callable, pef_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("samba_cli.inspecting.verify_lines", broken)
    result = sambac("verify", pef_file)
    assert result.code == 3
    assert "Internal error: ZeroDivisionError: planted" in result.err
    assert "-v" in result.err
    assert "Traceback" not in result.err


class TestDiff:
    """`sambac diff` ends with 1 exactly where something differs."""

    def test_the_same(self, sambac: Callable, pef_file: Path) -> None:
        twin = pef_file.with_name("twin.pef")
        twin.write_bytes(pef_file.read_bytes())
        result = sambac("diff", pef_file, twin)
        assert (result.code, result.out) == (0, f"{pef_file} and {twin} hold the same.\n")
        assert json.loads(sambac("diff", pef_file, twin, "--json").out) == {
            "equal": True,
            "differences": [],
        }

    def test_other_options(self, sambac: Callable, pef_file: Path, model: Path) -> None:
        other = pef_file.with_name("other.pef")
        sambac("compile", model, "-o", other)
        result = sambac("diff", pef_file, other)
        assert result.code == 1
        assert '  options.level: "O0" -> "O3"' in result.out.splitlines()
        assert "  only in layer.pef (2): h r" in result.out.splitlines()

    def test_other_weights(
        self, sambac: Callable, pef_file: Path, model: Path, weight: np.ndarray
    ) -> None:
        proto = onnx.load(model)
        weight[2, 1] += 1
        proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "weight"))
        onnx.save(proto, model)
        other = pef_file.with_name("other.pef")
        sambac("compile", model, "-O0", "-o", other)
        result = sambac("diff", pef_file, other, "--json")
        assert result.code == 1
        rows = json.loads(result.out)["differences"]
        assert {(row["part"], row["item"], row["field"]) for row in rows} == {
            ("producer", "", "source_hash"),
            ("symbols", "weight", "data.content"),
        }

    def test_another_layout_is_a_difference(self, sambac: Callable, pef_file: Path) -> None:
        program = pef.verify(pef_file)
        weights = program.segments[1]
        padded = pef.Segment(weights.name, weights.size + 64, weights.pieces)
        other = pef_file.with_name("other.pef")
        replace(program, segments=(program.segments[0], padded)).save(other)
        result = sambac("diff", pef_file, other)
        assert result.code == 1
        assert f"  weights: size: {weights.size} -> {weights.size + 64}" in result.out


class TestExtract:
    """`sambac extract` writes a section that computes what it computes in the PEF."""

    def test_a_section_with_its_weight(
        self, sambac: Callable, pef_file: Path, weight: np.ndarray
    ) -> None:
        target = pef_file.with_name("section.onnx")
        result = sambac("extract", pef_file, "--section", "0", "-o", target)
        assert (result.code, result.out) == (0, f"{target}\n")
        extracted = onnx.load(target)
        onnx.checker.check_model(extracted)
        assert [value.name for value in extracted.graph.input] == ["x"]
        assert [tensor.name for tensor in extracted.graph.initializer] == ["weight"]
        assert [node.name for node in extracted.graph.node] == ["matmul"]
        x = np.ones((2, 4), np.float32)
        (h,) = ReferenceEvaluator(extracted).run(None, {"x": x})
        np.testing.assert_allclose(h, x @ weight, rtol=1e-6)

    def test_large_weights_go_beside_the_model(
        self, sambac: Callable, pef_file: Path, weight: np.ndarray, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sambac.reconstruct.extract._INLINE_LIMIT", 0)
        target = pef_file.with_name("section.onnx")
        result = sambac("extract", pef_file, "--section", "0", "-o", target)
        assert result.out == f"{target}\n{target}.data\n"
        stored = numpy_helper.to_array(onnx.load(target).graph.initializer[0])
        np.testing.assert_array_equal(stored, weight)

    def test_names_inside_subgraphs_follow(
        self, sambac: Callable, loop: onnx.ModelProto, tmp_path: Path
    ) -> None:
        onnx.save(loop, tmp_path / "loop.onnx")
        sambac("compile", "-O0", tmp_path / "loop.onnx", "-o", tmp_path / "loop.pef")
        target = tmp_path / "section.onnx"
        assert sambac("extract", tmp_path / "loop.pef", "--section", "1", "-o", target).code == 0
        x = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
        (expected,) = ReferenceEvaluator(loop).run(None, {"x": x})
        (y,) = ReferenceEvaluator(onnx.load(target)).run(None, {"x": x, "t0": np.maximum(x, 0)})
        np.testing.assert_allclose(y, expected, rtol=1e-5)

    def test_unknown_section(self, sambac: Callable, pef_file: Path) -> None:
        target = pef_file.with_name("section.onnx")
        result = sambac("extract", pef_file, "--section", "9", "-o", target)
        assert result.code == 2
        assert "has no section 9; its sections are 0 to 2." in result.err
        assert not target.exists()


@pytest.fixture
def loop() -> onnx.ModelProto:
    """Three times sum @ w + t0, where t0 = Relu(x): names like those inside stored programs."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("MatMul", ["sum", "w"], ["i0"]),
            helper.make_node("Add", ["i0", "t0"], ["next"]),
        ],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("sum", TensorProto.FLOAT, [2, 3]),
        ],
        [info("still", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, [2, 3])],
    )
    weight = np.arange(9, dtype=np.float32).reshape(3, 3) / 9
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["t0"]),
            helper.make_node("Loop", ["count", "", "x"], ["y"], body=body),
        ],
        "loop",
        [info("x", TensorProto.FLOAT, [2, 3])],
        [info("y", TensorProto.FLOAT, [2, 3])],
        [
            helper.make_tensor("count", TensorProto.INT64, [], [3]),
            numpy_helper.from_array(weight, "w"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_help_teaches(sambac: Callable) -> None:
    text = sambac("--help").out
    for word in ("compile", "inspect", "verify", "diff", "extract", "Examples:", "Exit codes:"):
        assert word in text
    for verb in ("compile", "inspect", "verify", "diff", "extract"):
        assert "Usage: sambac " + verb in sambac(verb, "--help").out


def test_version(sambac: Callable, sambarun: Callable) -> None:
    major, minor = pef.FORMAT_VERSION
    for name, command in (("sambac", sambac), ("sambarun", sambarun)):
        assert command("--version").out == f"{name} 0.1.0 (PEF format {major}.{minor})\n"


def test_a_full_standard_output_is_an_error(pef_file: Path) -> None:
    code = "from samba_cli.sambac import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "inspect", str(pef_file)],
            stdout=full,
            stderr=-1,
            text=True,
        )
    assert (done.returncode, done.stderr) == (2, "Error: No space left on device.\n")


@pytest.mark.parametrize("words", [["inspect", "absent.pef"], ["-v", "inspect"], ["no-such-verb"]])
@pytest.mark.parametrize("tool", ["sambac", "sambarun"])
def test_a_full_standard_error_keeps_the_exit_code(tool: str, words: list[str]) -> None:
    code = f"from samba_cli.{tool} import main; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code, *words], stdout=-1, stderr=full)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000])
def test_a_record_that_is_no_json_is_damage(
    sambac: Callable, sambarun: Callable, pef_file: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a file reads none of its texts; who shows or compares them refuses them."""
    program = pef.verify(pef_file)
    monkeypatch.setattr("pef.writer.check_program", lambda _: [])
    bad = pef_file.with_name("bad.pef")
    pef.write(replace(program, producer=replace(program.producer, options=text)), bad)
    page = pef_file.with_name("page.html")
    results = [
        *(sambac("inspect", bad, *words) for words in ((), ("--json",), ("--html", page))),
        *(sambac("diff", *pair) for pair in ((pef_file, bad), (bad, pef_file))),
        *(sambac(verb, bad) for verb in ("verify", "explain")),
        sambarun(bad, "--list"),
    ]
    for result in results:
        assert result.code == 2
        assert "damaged" in result.err
        assert "no JSON object" in result.err or "should be JSON objects" in result.err
