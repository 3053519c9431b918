"""`sambarun`: inputs from words, results as text and files, comparisons, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import started
from onnx import TensorProto, helper


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)


@pytest.fixture
def y(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return softmax(np.maximum(x @ weight, 0))


def test_list(sambarun: Callable, pef_file: Path) -> None:
    result = sambarun(pef_file, "--list")
    assert result.code == 0
    assert result.out.startswith("layer.pef: ")
    assert "float32  2x4    x" in result.out
    assert "float32  2x3    y" in result.out
    assert len(result.out.split("Sections\n")[1].splitlines()) == 2 + 3


def test_summary_without_output(sambarun: Callable, pef_file: Path) -> None:
    result = sambarun(pef_file, "--input", "x=ones")
    assert (result.code, result.err) == (0, "")
    header, _, row = result.out.splitlines()
    assert header.split() == ["output", "dtype", "shape", "min", "max", "first", "values"]
    assert row.split()[:3] == ["y", "float32", "2x3"]


def test_random_is_the_same_every_time(sambarun: Callable, pef_file: Path) -> None:
    outs = {sambarun(pef_file, "--input", word).out for word in ("x=random", "*=random")}
    assert len(outs) == 1


def test_arrays_in_and_out(
    sambarun: Callable, pef_file: Path, tmp_path: Path, x: np.ndarray, y: np.ndarray
) -> None:
    np.save(tmp_path / "x.npy", x)
    target = tmp_path / "out.npz"
    result = sambarun(pef_file, "--input", f"x=@{tmp_path}/x.npy", "--output", target)
    assert (result.code, result.out) == (0, f"{target}: y\n")
    with np.load(target) as stored:
        np.testing.assert_allclose(stored["y"], y, rtol=1e-5)


def test_inputs_from_an_archive(
    sambarun: Callable, pef_file: Path, tmp_path: Path, x: np.ndarray, y: np.ndarray
) -> None:
    np.savez(tmp_path / "all.npz", x=x)
    np.save(tmp_path / "y.npy", y)
    result = sambarun(
        pef_file, "--inputs", tmp_path / "all.npz", "--expect", f"y=@{tmp_path}/y.npy"
    )
    assert result.code == 0
    assert result.out.startswith("y: as expected (max error ")


def test_a_difference_is_shown_and_is_code_1(
    sambarun: Callable, pef_file: Path, tmp_path: Path, x: np.ndarray, y: np.ndarray
) -> None:
    np.save(tmp_path / "x.npy", x)
    y[1, 2] += 0.5
    np.save(tmp_path / "y.npy", y)
    words = (pef_file, "--input", f"x=@{tmp_path}/x.npy", "--expect", f"y=@{tmp_path}/y.npy")
    result = sambarun(*words)
    assert (result.code, result.err) == (1, "")
    assert result.out.startswith("y[1,2] is ")
    assert "1 of 6 elements differ (max error 0.5" in result.out
    assert sambarun(*words, "--atol", "1").code == 0


def test_sections_by_id(
    sambarun: Callable, pef_file: Path, tmp_path: Path, x: np.ndarray, weight: np.ndarray
) -> None:
    np.save(tmp_path / "x.npy", x)
    target = tmp_path / "out.npz"
    words = ("--section-ids", "0", "--input", f"x=@{tmp_path}/x.npy", "--output", target)
    assert sambarun(pef_file, *words).code == 0
    with np.load(target) as stored:
        (name,) = stored.files
        np.testing.assert_allclose(stored[name], x @ weight, rtol=1e-5)


def test_sections_by_type(sambarun: Callable, pef_file: Path) -> None:
    assert sambarun(pef_file, "--sections", "FWD", "--input", "x=ones").code == 0
    result = sambarun(pef_file, "--sections", "OPT", "--input", "x=ones")
    assert result.code == 2
    assert "no sections of type OPT; it has FWD" in result.err


def test_iterations_report_latency_and_throughput(sambarun: Callable, pef_file: Path) -> None:
    result = sambarun(pef_file, "--input", "x=ones", "--iterations", "5")
    assert result.code == 0
    latency, throughput = result.out.splitlines()[-2:]
    assert latency.startswith("latency     median ")
    assert " p90 " in latency
    assert "(5 runs after 4 to warm up)" in latency
    assert throughput.endswith(" runs/s")


def test_profile_has_a_span_for_each_section(
    sambarun: Callable, pef_file: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    result = sambarun(pef_file, "--input", "x=ones", "--profile", trace)
    assert result.code == 0
    assert (
        f"{trace}: 3 spans, 3 operators in them; sections ran unlinked, one by one." in result.out
    )
    events = json.loads(trace.read_text())["traceEvents"]
    measured = [event["name"] for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert sorted(measured) == ["matmul", "matmul", "relu", "relu", "softmax", "softmax"]


def test_strings_from_npy(sambac: Callable, sambarun: Callable, tmp_path: Path) -> None:
    ports = [helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "s", ports[:1], ports[1:]
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "s.onnx")
    sambac("compile", tmp_path / "s.onnx", "-o", tmp_path / "s.pef")
    np.save(tmp_path / "x.npy", np.array(["a b", "ü"]))
    word = f"x=@{tmp_path}/x.npy"
    assert "a b" in sambarun(tmp_path / "s.pef", "--input", word).out
    words = ("--input", word, "--output", tmp_path / "y.npz")
    assert sambarun(tmp_path / "s.pef", *words).code == 0
    with np.load(tmp_path / "y.npz") as stored:
        assert stored["y"].tolist() == ["a b", "ü"]
    refused = sambarun(tmp_path / "s.pef", "--input", "x=random")
    assert refused.code == 2
    assert "cannot be made up" in refused.err
    missing = sambarun(tmp_path / "s.pef")
    assert missing.err.endswith("Give a file, --input x=@FILE.npy.\n")


def test_results_of_types_numpy_lacks_can_be_fed_back(
    sambac: Callable, sambarun: Callable, tmp_path: Path
) -> None:
    ports = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [2, 3]) for name in "xy"]
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[0, 1])
    graph = helper.make_graph([node], "bf", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "b.onnx")
    assert sambac("compile", tmp_path / "b.onnx", "-o", tmp_path / "b.pef").code == 0
    words = ("--input", "x=random", "--output", tmp_path / "y.npz")
    assert sambarun(tmp_path / "b.pef", *words).code == 0
    with np.load(tmp_path / "y.npz") as stored:
        np.save(tmp_path / "y.npy", stored["y"])
    again = (f"x=@{tmp_path}/y.npy", "--expect", f"y=@{tmp_path}/y.npy")
    result = sambarun(tmp_path / "b.pef", "--input", *again)
    assert (result.code, result.out) == (0, "y: as expected (max error 0)\n")


@dataclass(frozen=True)
class _Unwelcome:
    """Makes a folder if it is ever unpickled."""

    folder: Path

    def __reduce__(self) -> tuple[Callable, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def _write_archives(folder: Path) -> None:
    np.savez(folder / "pickle.npz", x=np.array([_Unwelcome(folder / "run")], object))
    np.save(folder / "pickle.npy", np.array([_Unwelcome(folder / "run")], object))
    np.savez(folder / "good.npz", x=np.ones((2, 4), np.float32))
    good = (folder / "good.npz").read_bytes()
    (folder / "short.npz").write_bytes(good[:-30])
    ones = good.index(np.ones(8, np.float32).tobytes())
    (folder / "flipped.npz").write_bytes(good[:ones] + b"\1" + good[ones + 1 :])


_EXPECTING = ["--input", "x=ones", "--expect", "y=@{tmp}/wide.npy"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Input 'x' (float32 2x4) is missing."),
        ([], "try --input '*=random'"),
        (["--input", "xs=random"], "did you mean 'x'?"),
        (["--input", "x"], "expected NAME=@FILE.npy, NAME=random or NAME=ones"),
        (["--input", "x=zeros"], "expected x=@FILE.npy, x=random or x=ones"),
        (["--input", "x=@absent.npy"], "absent.npy does not exist."),
        (["--input", "x=@{tmp}/text.npy"], "text.npy is no array file"),
        (["--input", "x=@{tmp}/twice.npy"], "twice.npy holds an array and more"),
        (["--input", "x=@{tmp}/pickle.npy"], "holds Python objects, which are never loaded"),
        (["--inputs", "{tmp}/pickle.npz"], "holds Python objects, which are never loaded"),
        (["--inputs", "{tmp}/short.npz"], "short.npz is no array file"),
        (["--inputs", "{tmp}/flipped.npz"], "flipped.npz: x is no array file"),
        (["--input", "x=@"], "expected x=@FILE.npy"),
        (["--input", "x=@{tmp}/wide.npy"], "float32[2, 4] was expected"),
        (["--input", "x=@{tmp}/double.npy"], "float64"),
        (["--input", "x=ones", "--section-ids", "7"], "no section 7"),
        (["--input", "x=ones", "--section-ids", "a"], "expected ids like 0,2 or 5..9"),
        (["--input", "x=ones", "--section-ids", "2..1"], "expected ids like 0,2 or 5..9"),
        (["--input", "x=ones", "--section-ids", "0.."], "expected ids like 0,2 or 5..9"),
        (["--input", "x=ones", "--section-ids", "0..99999999999"], "no section 3"),
        (["--input", "x=ones", "--section-ids", "9" * 5000], "expected ids like 0,2 or 5..9"),
        (["--input", "x=ones", "--iterations", "9" * 5000], "is no whole number"),
        (["--input", "x=ones", "--init", f"random:{'9' * 5000}"], "expected random:SEED"),
        (["--input", "x=ones", "--iterations", "1_0"], "'1_0' is no whole number"),
        (["--input", "x=ones", "--sections", ""], "--sections is empty; give TYPES"),
        (["--input", "x=ones", "--threads", "0"], "'--threads': 0 is not in the range 1<=x<=256"),
        ([*_EXPECTING, "--rtol", "-1"], "not in the range"),
        # Within an infinite tolerance any result would be as expected.
        ([*_EXPECTING, "--rtol", "inf"], "inf is not a finite number"),
        ([*_EXPECTING, "--atol", "nan"], "nan is not a finite number"),
        (["--input", "x=ones", "--output", "{device}"], "is a device or pipe"),
        (["--input", "x=ones", "--profile", "{device}"], "is a device or pipe"),
        (["--input", "x=@{tmp}/wide.npy", "--output", "{tmp}/wide.npy"], "is the input; writing"),
        (
            ["--input", "x=ones", "--load", "{tmp}/a", "--output", "{tmp}/a"],
            "is the input; writing",
        ),
        # Compared with itself, a result would always be as expected.
        (
            ["--input", "x=ones", "--expect", "y=@{tmp}/y.npy", "--output", "{tmp}/y.npy"],
            "is the input; writing",
        ),
        (["--input", "x=ones", "--expect", "y"], "expected NAME=@FILE.npy"),
        (["--input", "x=ones", "--expect", "z=@{tmp}/wide.npy"], "no such result, only y"),
        (["--input", "x=ones", "--output", "{tmp}/no/out.npz"], "does not exist, so"),
        (["--input", "x=ones", "--rtol", "0.1"], "--rtol: of use only with --expect"),
        (["--input", "x=ones", "--atol", "1e-5"], "--atol: of use only with --expect"),
        (["--iterations", "0"], "0 is not in the range"),
        (["--resume", "a"], "No such option '--resume'; --load FILE.safetensors goes on from"),
    ],
)
def test_wrong_words(
    sambarun: Callable, pef_file: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    np.save(tmp_path / "wide.npy", np.ones((2, 5), np.float32))
    np.save(tmp_path / "double.npy", np.ones((2, 4)))
    (tmp_path / "text.npy").write_text("no numbers")
    (tmp_path / "twice.npy").write_bytes((tmp_path / "wide.npy").read_bytes() * 2)
    _write_archives(tmp_path)
    os.mkfifo(device := tmp_path / "device")
    result = sambarun(pef_file, *(word.format(tmp=tmp_path, device=device) for word in words))
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


def test_a_linked_output_stays_a_link(sambarun: Callable, pef_file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.npz").symlink_to(tmp_path / "real.npz")
    assert sambarun(pef_file, "--input", "x=ones", "--output", tmp_path / "link.npz").code == 0
    assert (tmp_path / "link.npz").is_symlink()
    with np.load(tmp_path / "real.npz") as stored:
        assert stored.files == ["y"]


def test_damaged_weights_stop_the_run(sambarun: Callable, pef_file: Path) -> None:
    data = bytearray(pef_file.read_bytes())
    data[-1] ^= 1
    pef_file.write_bytes(data)
    result = sambarun(pef_file, "--input", "x=ones")
    assert (result.code, result.out) == (2, "")
    assert "damaged" in result.err


def test_no_pef(sambarun: Callable, model: Path) -> None:
    result = sambarun(model, "--list")
    assert result.code == 2
    assert result.err.startswith(f"Error: {model}")


def test_a_run_imports_little(pef_file: Path) -> None:
    code = "from samba_cli.sambarun import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", code, str(pef_file), "--input", "x=ones"]
    done = subprocess.run(command, capture_output=True, text=True)
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.split("\n")
    }
    assert {"click", "numpy", "onnxruntime", "pef", "sambarun"} <= imported
    heavy = {"torch", "onnx", "onnx_ir", "networkx", "sambac", "rich", "yaml", "flatbuffers"}
    assert not imported & (heavy | {"importlib_metadata", "tempfile", "asyncio", "logging"})


def test_help(sambarun: Callable) -> None:
    text = sambarun("--help").out
    for word in ("--list", "Examples:", "Exit codes:", "seed 0"):
        assert word in text


def test_an_interrupt_does_not_wait_for_the_computation(
    sambac: Callable, tmp_path: Path, endless: onnx.ModelProto
) -> None:
    onnx.save(endless, tmp_path / "endless.onnx")
    assert sambac("compile", tmp_path / "endless.onnx", "-o", tmp_path / "e.pef").code == 0
    code = "from samba_cli.sambarun import main; main()"
    words = (tmp_path / "e.pef", "--input", "x=ones")
    with started((sys.executable, "-c", code, *words)) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "Note: x: n is taken as 1.\n"
        time.sleep(1)  # by now it computes
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "Interrupted.\n")


@pytest.fixture
def endless() -> onnx.ModelProto:
    """A loop that counts to 2^60."""
    scalar = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Add", ["sum", "x"], ["next"]),
        ],
        "body",
        [
            scalar("i", TensorProto.INT64, []),
            scalar("go", TensorProto.BOOL, []),
            scalar("sum", TensorProto.FLOAT, ["n"]),
        ],
        [scalar("still", TensorProto.BOOL, []), scalar("next", TensorProto.FLOAT, ["n"])],
    )
    count = helper.make_tensor("count", TensorProto.INT64, [], [1 << 60])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)],
        "endless",
        [scalar("x", TensorProto.FLOAT, ["n"])],
        [scalar("y", TensorProto.FLOAT, ["n"])],
        [count],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_names_neither_steer_the_terminal_nor_flood_it(
    sambac: Callable, sambarun: Callable, tmp_path: Path
) -> None:
    names = [f"x{number}\x1b[31m" for number in range(30)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in names]
    results = [helper.make_tensor_value_info(f"{n}y", TensorProto.FLOAT, [1]) for n in names]
    nodes = [helper.make_node("Neg", [name], [f"{name}y"]) for name in names]
    graph = helper.make_graph(nodes, "graph", info, results)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    pef_file, target = tmp_path / "m.pef", tmp_path / "o.npz"
    assert sambac("compile", tmp_path / "m.onnx", "-o", pef_file).code == 0
    done = sambarun(pef_file, "--input", "*=ones", "--output", target)
    assert "\\u001b[31my" in done.out
    assert done.out.endswith(" and 20 more\n")
    wrong = sambarun(pef_file, "--input", "z=ones")
    assert "x0\\x1b[31m, x1" in wrong.err
    assert wrong.err.endswith(" and 20 more.\n")
    assert "\x1b" not in done.out + wrong.err


def test_sequences_are_given_and_compared_item_by_item(
    sambac: Callable, sambarun: Callable, tmp_path: Path
) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    node = helper.make_node("SequenceInsert", ["s", "x"], ["t"])
    inputs = [helper.make_value_info("s", kind), helper.make_tensor_value_info("x", 1, [2])]
    graph = helper.make_graph([node], "graph", inputs, [helper.make_value_info("t", kind)])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    pef_file, out = tmp_path / "m.pef", tmp_path / "out.npz"
    assert sambac("compile", tmp_path / "m.onnx", "-o", pef_file).code == 0
    items = {f"s.{number}": np.full(2, number, np.float32) for number in range(3)}
    np.savez(tmp_path / "in.npz", **items)
    np.save(tmp_path / "one.npy", np.ones(2, np.float32))
    words = ["--inputs", tmp_path / "in.npz", "--input", "x=ones"]
    assert sambarun(pef_file, *words, "--output", out).code == 0
    with np.load(out) as stored:
        assert [stored[f"t.{number}"][0] for number in range(4)] == [0, 1, 2, 1]
    expected = f"t.3=@{tmp_path}/one.npy"
    assert sambarun(pef_file, *words, "--expect", expected).out.startswith("t.3: as expected")
    wrong = sambarun(pef_file, *words, "--expect", f"t=@{tmp_path}/one.npy")
    assert (wrong.code, wrong.out) == (1, "t: sequence of 4 came, an array was expected\n")
    assert "--input s.0=@FILE.npy" in sambarun(pef_file, "--input", "x=ones").err
