"""`sambac compile`: what it writes, what it says, and how it refuses."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import pef
from sambac import CompileOptions
from sambac.option import options_of


def test_writes_the_pef_and_its_log_and_says_so(sambac: Callable, model: Path) -> None:
    target = model.with_name("out.pef")
    result = sambac("compile", model, "-o", target)
    assert result.code == 0
    assert result.err == ""
    first, second = result.out.splitlines()
    assert first.startswith(f"{target}: ")
    assert ", 1 section, 3 ops, " in first
    assert first.endswith(" a run (modelled)")
    assert second == f"{target}.log: sections, memory, symbols"
    assert pef.verify(target).producer.tool == "sambac"
    assert sorted(path.name for path in model.parent.iterdir()) == [
        "layer.onnx",
        "out.pef",
        "out.pef.log",
    ]


def test_the_log_is_what_inspect_prints(sambac: Callable, model: Path) -> None:
    target = model.with_name("out.pef")
    sambac("compile", model, "-o", target)
    log = Path(f"{target}.log").read_text(encoding="utf-8")
    assert sambac("inspect", target).out == log
    assert "Sections (1; bytes in, out, of fixed weights; latency is modelled)" in log


def test_without_output_the_pef_is_named_after_the_model(
    sambac: Callable, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert sambac("compile", model).code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["layer.pef", "layer.pef.log"]


def test_equal_compilations_give_equal_bytes(sambac: Callable, model: Path, tmp_path: Path) -> None:
    outputs = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        sambac("compile", model, "-o", folder / "m.pef")
        outputs.append([path.read_bytes() for path in sorted(folder.iterdir())])
    assert outputs[0] == outputs[1]


def test_levels_reach_the_compiler(sambac: Callable, model: Path) -> None:
    target = model.with_name("out.pef")
    sambac("compile", model, "-O0", "-o", target)
    assert len(pef.verify(target).sections) == 3


def test_input_fixes_an_open_shape(sambac: Callable, open_model: Path) -> None:
    target = open_model.with_name("out.pef")
    assert sambac("compile", open_model, "--input", "x=5x4", "-o", target).code == 0
    program = pef.verify(target)
    assert program.symbols[program.graphs[0].inputs[0].symbol].shape == (5, 4)


def test_verbose_names_the_stages(sambac: Callable, model: Path) -> None:
    result = sambac("compile", model, "-v", "-o", model.with_name("out.pef"))
    assert result.code == 0
    stages = [line.split(" s  ")[1] for line in result.err.splitlines()]
    assert stages[0] == "load"
    assert stages[-1] == "write"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("net.pt", "net.pt is a PyTorch file of weights; an ONNX file (.onnx), an exported"),
        ("absent.pt2", "absent.pt2 does not exist."),
        ("absent.py:build", "absent.py does not exist."),
        (__file__, "is Python source; say which function of it makes the model: "),
        (f"{__file__}:a-b", "is Python source; say which function of it makes the model: "),
        ("net.pef", "net.pef is compiled already; run it with sambarun."),
        ("absent.onnx", "absent.onnx does not exist."),
    ],
)
def test_other_models_are_refused(sambac: Callable, name: str, said: str) -> None:
    result = sambac("compile", name)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("x", "expected NAME=SHAPE"),
        ("x=2xfour", "expected NAME=SHAPE"),
        (f"x={'9' * 5000}", "expected NAME=SHAPE"),
        ("x=-1x4", "expected NAME=SHAPE"),
        ("x=2x4:flaot32", "'flaot32' is no element type (did you mean 'float32'?)"),
        ("y=2x4", "has no input 'y'; its inputs are x"),
        ("x=2x5", "x"),
    ],
)
def test_wrong_input_specifications(sambac: Callable, model: Path, spec: str, said: str) -> None:
    result = sambac("compile", model, "--input", spec)
    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") <= 3


def test_an_input_that_is_given_twice_is_refused(sambac: Callable, model: Path) -> None:
    result = sambac("compile", model, "--input", "x=2x4", "--input", "x=5x4")
    assert (result.code, result.err) == (2, "Error: input 'x' is given twice.\n")


def test_the_command_has_every_option_but_those_of_programs_alone(sambac: Callable) -> None:
    known = options_of(CompileOptions)
    spelled = {each.spelling.flag for each in known.values() if each.spelling}
    words = sambac("compile", "--help").out.split()
    assert spelled <= {*words}
    alone = {"memory", "sections", "section_breaks", "chip_breaks", "backward_from", "input_grads"}
    assert len({*spelled}) == len(known) - len(alone)


def test_not_an_onnx_file(sambac: Callable, tmp_path: Path) -> None:
    path = tmp_path / "junk.onnx"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    result = sambac("compile", path, "-o", tmp_path / "o.pef")
    assert result.code == 2
    assert "junk.onnx" in result.err
    assert not (tmp_path / "o.pef").exists()


def test_truncated_onnx_file(sambac: Callable, model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-40])
    result = sambac("compile", model, "-o", model.with_name("o.pef"))
    assert result.code == 2
    assert "layer.onnx" in result.err


def test_missing_external_data(sambac: Callable, model: Path) -> None:
    proto = onnx.load(model)
    onnx.save(proto, model, save_as_external_data=True, location="w.bin", size_threshold=0)
    model.with_name("w.bin").unlink()
    result = sambac("compile", model, "-o", model.with_name("o.pef"))
    assert result.code == 2
    assert "w.bin" in result.err


def test_all_unknown_operators_at_once(sambac: Callable, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Twiddle", ["a"], ["y"], name="second", domain="no.such"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("no.such", 1)]
    graph = helper.make_graph(nodes, "odd", ports[:1], ports[1:])
    path = tmp_path / "odd.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    result = sambac("compile", path, "-o", tmp_path / "o.pef")
    assert result.code == 2
    for word in ("Frobnicate", "first", "Twiddle", "second"):
        assert word in result.err


def test_a_model_that_does_not_fit(sambac: Callable, tmp_path: Path) -> None:
    shape = [1 << 22, 1 << 22]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "big", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "big.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    result = sambac("compile", path, "-o", tmp_path / "o.pef")
    assert result.code == 2
    assert "fit" in result.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("z = MatMul(x, x)", ()),  # does not fit
        ("z = Neg(u) u = Neg(z)", ()),  # a cycle
        ("z = Neg(x)", ("--train",)),  # nothing to train
        ("z = Neg(nowhere)", ()),  # damaged
        ("z = Neg(x)", ("--input", "x=3x3")),  # another shape than it has
        ("z = Neg(x)", ("--input", "y=2x3")),  # another input than it has
    ],
)
def test_every_refusal_of_a_model_names_its_file(
    sambac: Callable, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]>g (float[2, 3] x) => (float[2, 3] z) {{ {text} }}'
    )
    path = tmp_path / "spoilt.onnx"
    onnx.save(model, path)
    result = sambac("compile", path, "-o", tmp_path / "m.pef", *words)
    assert result.code == 2
    assert result.err.startswith("Error: spoilt")
    assert result.err.count("spoilt") == 1


def test_unknown_architecture(sambac: Callable, model: Path) -> None:
    result = sambac("compile", model, "--arch", "sn99", "-o", model.with_name("o.pef"))
    assert result.code == 2
    assert "sn99" in result.err
    assert "sn40l" in result.err


def test_unknown_option_is_explained(sambac: Callable, model: Path) -> None:
    result = sambac("compile", model, "-O2")
    assert result.code == 2
    assert "'2' is not one of '0', '1', '3'" in result.err


class TestOutput:
    """Outputs that cannot be written are refused before any work, and leave nothing."""

    def test_folder_does_not_exist(self, sambac: Callable, model: Path) -> None:
        result = sambac("compile", model, "-o", model.parent / "no" / "o.pef")
        assert result.code == 2
        assert "does not exist, so" in result.err

    def test_output_is_a_folder(self, sambac: Callable, model: Path) -> None:
        result = sambac("compile", model, "-o", model.parent)
        assert result.code == 2
        assert "is a folder" in result.err

    @pytest.mark.parametrize("output", [".", "..", "/", "./"])
    def test_output_is_a_folder_without_a_name(
        self, sambac: Callable, model: Path, output: str
    ) -> None:
        result = sambac("compile", model, "-o", output)
        assert (result.code, result.out) == (2, "")
        assert "is a folder; give a file name" in result.err

    def test_output_is_the_model(self, sambac: Callable, model: Path) -> None:
        before = model.read_bytes()
        result = sambac("compile", model, "-o", model)
        assert result.code == 2
        assert "would destroy it" in result.err
        assert model.read_bytes() == before

    @pytest.mark.parametrize(
        ("kept", "target"), [("w.bin", "w.bin"), ("w.bin", "link"), ("w.pef.log", "w.pef")]
    )
    def test_output_is_what_the_model_keeps_weights_in(
        self, sambac: Callable, model: Path, kept: str, target: str
    ) -> None:
        proto = onnx.load(model)
        onnx.save(proto, model, save_as_external_data=True, location=kept, size_threshold=0)
        data = model.with_name(kept)
        model.with_name("link").symlink_to(data)
        before = data.read_bytes()
        result = sambac("compile", model, "-o", model.with_name(target))
        assert result.code == 2
        assert "is the input; writing there would destroy it" in result.err
        assert data.read_bytes() == before
        model.with_name("net.pef").write_bytes(b"w.bin")
        assert sambac("compile", model, "-o", model.with_name("net.pef")).code == 0

    def test_disk_full_in_the_middle(
        self, model: Path, tmp_path: Path, limited: Callable[..., subprocess.Popen[str]]
    ) -> None:
        target = tmp_path / "out" / "o.pef"
        target.parent.mkdir()
        target.write_bytes(b"an older file")
        process = limited(["compile", str(model), "-o", str(target)], file_size=3000)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "o.pef" in err
        assert "Traceback" not in err
        assert [path.name for path in target.parent.iterdir()] == ["o.pef"]
        assert target.read_bytes() == b"an older file"

    def test_interrupt_leaves_nothing(
        self, model: Path, tmp_path: Path, limited: Callable[..., subprocess.Popen[str]]
    ) -> None:
        target = tmp_path / "out" / "o.pef"
        target.parent.mkdir()
        process = limited(["compile", str(model), "-v", "-o", str(target)])
        assert process.stderr is not None
        assert "load" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "Interrupted." in err
        assert list(target.parent.iterdir()) == []


@pytest.fixture
def limited() -> Callable[..., subprocess.Popen[str]]:
    """Start `sambac` in a process that may write files of `file_size` bytes at most."""

    def start(arguments: list[str], file_size: int | None = None) -> subprocess.Popen[str]:
        def limit() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in a terminal
            if file_size is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

        return subprocess.Popen(
            [sys.executable, "-c", "from samba_cli.sambac import main; main()", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limit,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    return start


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fusion-rules", "rules.yaml"], "(--fusion-rules) are for level O1 (-O1)"),
        (["-O1", "--fusion-rules", "absent.yaml"], "fusion rules: No such file or directory."),
        (["-O1", "--fusion-rules", "{model}"], "fusion rules are a YAML file; this is not text."),
        (["-o", "{fifo}"], "is a device or pipe; give a file name"),
        (["--arch", "{fifo}"], "is a device or pipe; store the description in a file"),
        (
            ["--precision", "int8", "--calibrate", "{fifo}"],
            "is a device or pipe; store the arrays in a file",
        ),
    ],
)
def test_wrong_words(
    sambac: Callable, model: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    places = {"model": model, "fifo": tmp_path / "fifo"}
    result = sambac("compile", model, *(word.format(**places) for word in words))
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert (tmp_path / "fifo").is_fifo()


def test_a_pipe_is_no_model(sambac: Callable, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    result = sambac("compile", tmp_path / "fifo", "-o", tmp_path / "net.pef")
    assert (result.code, result.out) == (2, "")
    assert "is a device or pipe; store the model in a file" in result.err


def test_a_folder_in_the_place_of_the_log_is_told(
    sambac: Callable, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.pef.log").mkdir()
    result = sambac("compile", model, "-o", tmp_path / "net.pef")
    assert (result.code, result.out) == (2, "")
    assert "net.pef was written, but its log" in result.err
    assert "it is no regular file" in result.err
    assert (tmp_path / "net.pef.log").is_dir()


def test_own_fusion_rules_that_fuse_nothing_are_told(
    sambac: Callable, model: Path, tmp_path: Path
) -> None:
    """As a misspelt type or child of a rule leaves it; a rule that fuses says nothing."""
    rules = tmp_path / "rules.yaml"
    pattern = "{{a: {{op_type: {}, child: b}}, b: {{op_type: {}}}}}"
    rule = f"{{}}:\n  priority: 999\n  pattern: {pattern}\n"
    rules.write_text(rule.format("used", "linear", "relu") + rule.format("idle", "relu", "celu"))
    result = sambac("compile", model, "-o", tmp_path / "net.pef", "-O1", "--fusion-rules", rules)
    assert result.code == 0
    assert "Warning: rules of rules.yaml fuse nothing here, as no operators" in result.err
    assert result.err.endswith("match the same: 'idle'\n")
