"""Parts of a training step from the command line: gradients, and the state after an update."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from training_programs import Reference, batches, linear_regression
from training_variants import accumulating, packed

from sambac import SGD, CompileOptions
from sambac import compile as sambac_compile

_PROGRAMS = {"plain": linear_regression, "packed": packed, "accumulating": accumulating}


@pytest.fixture(params=_PROGRAMS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "line.pef"
    _PROGRAMS[request.param]().program().save(path)
    return path


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    np.savez(tmp_path / "batch.npz", **batches(1)[0])
    return tmp_path / "batch.npz"


def _ok(result: object) -> str:
    assert (result.code, result.err) == (0, "")
    return result.out


def _assert_equal(one: Path, other: Path) -> None:
    ours, theirs = load_file(one), load_file(other)
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"w__grad", "b__grad", "flat_grad"}:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=1e-7, err_msg=name)


def test_gradients_are_shown_and_stored(
    sambarun: Callable, program: Path, batch: Path, tmp_path: Path
) -> None:
    words = (program, "--inputs", batch, "--sections", "FWD,BCKWD")
    shown = _ok(sambarun(*words))
    assert [line.split()[0] for line in shown.splitlines()[2:]] == ["loss", "w__grad", "b__grad"]
    target = tmp_path / "grads.npz"
    assert _ok(sambarun(*words, "--output", target)) == f"{target}: loss, w__grad, b__grad\n"
    expected = Reference.of(linear_regression()).gradients(**batches(1)[0])
    with np.load(target) as found:
        for name, gradient in expected.items():
            np.testing.assert_allclose(
                found[f"{name}__grad"].reshape(-1), gradient.reshape(-1), rtol=1e-5
            )


def test_one_part_after_the_other_is_a_step(
    sambarun: Callable, program: Path, batch: Path, tmp_path: Path
) -> None:
    kept = {name: tmp_path / f"{name}.safetensors" for name in ("one", "two", "three", "whole")}
    files = {name: tmp_path / f"{name}.npz" for name in ("forward", "gradients")}
    rate = ("--hyperparam", "drop.p=0.3")
    out = _ok(
        sambarun(
            program, "--inputs", batch, "--sections", "FWD", "--train", *rate,
            "--output", files["forward"], "--save", kept["one"],
        )
    )  # fmt: skip
    assert out.splitlines()[0].startswith(f"{files['forward']}: loss, and ")
    assert out.splitlines()[0].endswith(" for other sections")
    _ok(
        sambarun(
            program, "--inputs", files["forward"], "--sections", "BCKWD", "--load", kept["one"],
            "--output", files["gradients"],
        )
    )  # fmt: skip
    out = _ok(
        sambarun(
            program, "--inputs", files["gradients"], "--sections", "OPT", "--load", kept["one"],
            "--save", kept["two"],
        )
    )  # fmt: skip
    assert out == f"no results\n{kept['two']}: the state after this run\n"
    _ok(sambarun(program, "--inputs", batch, *rate, "--save", kept["whole"]))
    _assert_equal(kept["two"], kept["whole"])
    words = ("--sections", "FWD,BCKWD,OPT")
    _ok(sambarun(program, "--inputs", batch, *rate, *words, "--save", kept["three"]))
    _assert_equal(kept["three"], kept["whole"])


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program whose backward pass reads inputs of the model too."""
    folder = tmp_path_factory.mktemp("network")
    weights = [
        numpy_helper.from_array(np.full(shape, 0.1, np.float32), name)
        for name, shape in (("v", (3, 4)), ("w", (4, 2)))
    ]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "v"], ["h"]),
            helper.make_node("Tanh", ["h"], ["a"]),
            helper.make_node("MatMul", ["a", "w"], ["p"]),
        ],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 3])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [5, 2])],
        weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = CompileOptions(train=True, loss=("mse:p,t",), optimizers=(SGD(lr=0.1),))
    sambac_compile(model, options).save(folder / "n.pef")
    generator = np.random.default_rng(0)
    arrays = {"x": (5, 3), "t": (5, 2)}
    batch = {name: generator.normal(size=s).astype(np.float32) for name, s in arrays.items()}
    np.savez(folder / "batch.npz", **batch)
    return folder


def test_what_a_part_stores_is_all_that_the_next_one_needs(
    sambarun: Callable, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(network)
    _ok(sambarun("n.pef", "--inputs", "batch.npz", "--sections", "FWD", "--train",
                 "--output", "f.npz", "--save", "1.safetensors"))  # fmt: skip
    out = _ok(sambarun("n.pef", "--inputs", "f.npz", "--load", "1.safetensors", "--sections",
                       "BCKWD", "--output", "g.npz"))  # fmt: skip
    assert sorted(out.strip().split(": ")[1].split(", ")) == ["v__grad", "w__grad"]
    _ok(sambarun("n.pef", "--inputs", "g.npz", "--load", "1.safetensors", "--sections", "OPT",
                 "--save", "2.safetensors"))  # fmt: skip
    _ok(sambarun("n.pef", "--inputs", "batch.npz", "--save", "whole.safetensors"))
    _assert_equal(Path("2.safetensors"), Path("whole.safetensors"))


def test_results_alone_are_not_what_the_next_part_needs(
    sambarun: Callable, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given beside what is needed is known, and keeps nobody from saying what to do."""
    monkeypatch.chdir(network)
    _ok(sambarun("n.pef", "--inputs", "batch.npz", "--sections", "FWD", "--output", "r.npz"))
    result = sambarun("n.pef", "--inputs", "r.npz", "--sections", "BCKWD")
    assert result.code == 2
    assert result.err.startswith("Error: What FWD sections give is missing: ")
    assert result.err.endswith("and give it with --inputs FILE.npz.\n")


def test_what_other_parts_give_is_asked_for_with_the_way_to_get_it(
    sambarun: Callable, tmp_path: Path
) -> None:
    program = tmp_path / "line.pef"
    linear_regression().program().save(program)
    result = sambarun(program, "--sections", "BCKWD")
    assert result.code == 2
    assert result.err == (
        "Error: What FWD sections give is missing: 'h', 'diff'.\n"
        "Run them in the same command (--sections FWD,...), or store it with\n"
        "--sections FWD --train --output FILE.npz, and give it with --inputs FILE.npz.\n"
    )
    assert "What BCKWD sections give is missing: 'w__grad'" in (
        sambarun(program, "--sections", "OPT").err
    )


def test_the_list_says_what_each_part_needs_and_gives(sambarun: Callable, tmp_path: Path) -> None:
    program = tmp_path / "line.pef"
    linear_regression().program().save(program)
    rows = _ok(sambarun(program, "--list")).partition("Parts of a step")[2].splitlines()[3:]
    cells = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]
    assert cells == [
        ["FWD", "x, y", "prediction, loss, average"],
        ["FWD --train", "x, y", "loss, 2 tensors for others, a new state"],
        ["BCKWD", "2 tensors of FWD", "2 gradients"],
        ["OPT", "2 tensors of BCKWD", "a new state"],
        ["FWD,BCKWD", "x, y", "loss, 2 gradients, a new state"],
    ]


def test_a_state_is_saved_where_there_is_one(
    sambarun: Callable, pef_file: Path, tmp_path: Path
) -> None:
    result = sambarun(pef_file, "--input", "x=ones", "--save", tmp_path / "s.safetensors")
    assert result.code == 2
    assert "has no state; it was compiled for inference" in result.err


def test_a_program_that_is_constant_runs_whatever_is_selected_that_it_could_have(
    sambac: Callable, sambarun: Callable, tmp_path: Path
) -> None:
    constant = numpy_helper.from_array(np.arange(3, dtype=np.float32))
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value=constant)],
        "constant",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "c.onnx")
    target = tmp_path / "c.pef"
    assert sambac("compile", tmp_path / "c.onnx", "-o", target).code == 0
    assert _ok(sambarun(target, "--sections", "FWD")) == _ok(sambarun(target))
    refused = sambarun(target, "--sections", "OPT")
    assert (refused.code, refused.err) == (
        2, "Error: The program has no sections of type OPT; it has FWD.\n",
    )  # fmt: skip


def test_gradients_are_clipped_between_parts_as_in_a_step(
    sambarun: Callable, tmp_path: Path
) -> None:
    weight = numpy_helper.from_array(np.ones((3, 1), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    model = helper.make_model(
        helper.make_graph(nodes, "line", [x], [loss], [weight]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    program, names = tmp_path / "line.pef", ("gradients", "clipped")
    options = CompileOptions(train=True, optimizers=(SGD(lr=0.1),), max_grad_norm=0.01)
    sambac_compile(model, options).save(program)
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    found = {name: tmp_path / f"{name}.npz" for name in names}
    _ok(sambarun(program, "--input", "x=random", "--save", whole))
    words = (program, "--input", "x=random", "--sections", "FWD,BCKWD")
    _ok(sambarun(*words, "--output", found["gradients"]))
    missing = sambarun(program, "--sections", "GRADNORM")
    assert missing.err.startswith("Error: What BCKWD sections give is missing: 'w__grad'")
    words = (program, "--inputs", found["gradients"], "--sections", "GRADNORM")
    _ok(sambarun(*words, "--output", found["clipped"]))
    missing = sambarun(program, "--sections", "OPT")
    assert missing.err.startswith("Error: What GRADNORM sections give is missing: 'w__grad'")
    words = (program, "--inputs", found["clipped"], "--sections", "OPT")
    _ok(sambarun(*words, "--save", parts))
    with np.load(found["clipped"]) as arrays:
        assert np.linalg.norm(arrays["w__grad"]) == pytest.approx(0.01, rel=1e-4)
    _assert_equal(whole, parts)
    told = sambarun(program, "--inputs", found["gradients"], "--sections", "OPT")
    assert (told.code, "OPT runs without GRADNORM, which clips gradients" in told.err) == (0, True)


def test_an_update_by_gradients_of_zero_is_told(
    sambarun: Callable, batch: Path, tmp_path: Path
) -> None:
    """Where gradients add up over runs they are there before any backward pass, as zeros."""
    program, gradients = tmp_path / "line.pef", tmp_path / "grads.npz"
    accumulating().program().save(program)
    told = sambarun(program, "--sections", "OPT", "--save", tmp_path / "s.safetensors")
    assert told.code == 0
    assert told.err == (
        "Note: OPT runs on gradients of zero, as no BCKWD has run: give some with --inputs, or a "
        "checkpoint that has some with --load.\n"
    )
    _ok(sambarun(program, "--sections", "OPT", "--load", tmp_path / "s.safetensors"))
    _ok(sambarun(program, "--inputs", batch, "--sections", "FWD,BCKWD", "--output", gradients))
    _ok(sambarun(program, "--sections", "OPT", "--inputs", gradients))
    _ok(sambarun(program, "--inputs", batch))
