"""`sambac compile --train`: what it makes of models and options, and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pef
from pef.program import SectionType


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Two layers, x float32 [4, 8] to logits [4, 3], with four parameters of 75 elements."""
    random = np.random.default_rng(0)
    shapes = {"a.weight": (8, 6), "a.bias": (6,), "b.weight": (6, 3), "b.bias": (3,)}
    weights = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "a.weight", "a.bias"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "b.weight", "b.bias"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [4, 3])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, tmp_path / "network.onnx")
    return tmp_path / "network.onnx"


_LOSS = ("--train", "--loss", "cross_entropy:logits,y")


def types(program: pef.Program) -> list[SectionType]:
    """The types of a step's sections, each once, in the order of the schedule."""
    calls = program.schedule[: program.graphs[0].calls]
    return list(dict.fromkeys(program.sections[section].type for section in calls))


def test_says_what_it_trains(sambac: Callable, network: Path, tmp_path: Path) -> None:
    target = tmp_path / "n.pef"
    words = ("--optimizer", "adamw:lr=1e-2", "--freeze", "b.*", "-o", target)
    result = sambac("compile", network, *_LOSS, *words)
    assert (result.code, result.err) == (0, "")
    first, minimises, trains, sections, memory, *more, log = result.out.splitlines()
    assert first.startswith(f"{target}: ")
    assert first.endswith(" a step (modelled)")
    assert minimises == "  minimises loss"
    assert trains == "  trains    2 parameters (54 elements), 2 frozen (21 elements)"
    assert sections == "  sections  train 1 FWD, 1 BCKWD, 1 OPT; eval 1 FWD"
    assert re.match(r"  memory    [\d.]+ KiB: parameters 216 B, frozen parameters 84 B, ", memory)
    assert "optimizer state " in " ".join([memory, *more])
    assert all(len(line) < 80 for line in (memory, *more))
    assert log == f"{target}.log: sections, memory, symbols"


def test_options_reach_the_program(sambac: Callable, network: Path, tmp_path: Path) -> None:
    words = ("--optimizer", "sgd:lr=0.5,momentum=0.9", "--max-grad-norm", "2", "--accumulate")
    assert sambac("compile", network, *_LOSS, *words, "-o", tmp_path / "n.pef").code == 0
    with pef.open(tmp_path / "n.pef") as file:
        program = file.program
    kinds = SectionType
    assert types(program) == [kinds.ZEROGRAD, kinds.FWD, kinds.BCKWD, kinds.GRADNORM, kinds.OPT]
    defaults = {argin.name: argin.default for argin in program.argins}
    assert defaults["sgd.lr"] == 0.5
    assert defaults["sgd.momentum"] == 0.9
    assert defaults["max_grad_norm"] == 2
    assert json.loads(program.producer.options)["train"] is True


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-O0",),
        ("-O1",),
        ("--optimizer", "adamw"),
        ("--optimizer", "adamw", "--max-grad-norm", 1),
        ("--optimizer", "sgd:momentum=0.9", "-O1", "--max-grad-norm", 1),
        ("--optimizer", "adam", "--accumulate", "--recompute", "--io-host-memory"),
        ("--optimizer", "sgd:params=a.*", "--optimizer", "lamb:params=b.*", "--max-grad-norm", 1),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_plans_are_verified_from_the_file(
    sambac: Callable, network: Path, tmp_path: Path, words: tuple[object, ...]
) -> None:
    target = tmp_path / "n.pef"
    assert sambac("compile", network, *_LOSS, *words, "-o", target).code == 0
    result = sambac("verify", target)
    assert (result.code, result.err) == (0, "")


def test_an_update_can_be_extracted(sambac: Callable, network: Path, tmp_path: Path) -> None:
    target, model = tmp_path / "n.pef", tmp_path / "update.onnx"
    assert sambac("compile", network, *_LOSS, "--optimizer", "sgd:lr=0.5", "-o", target).code == 0
    with pef.open(target) as file:
        kinds = [section.type for section in file.program.sections]
    result = sambac("extract", target, "--section", kinds.index(SectionType.OPT), "-o", model)
    assert result.code == 0, result.err
    session = onnxruntime.InferenceSession(model)
    shapes = {put.name: put.shape for put in session.get_inputs()}
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    feeds |= {"sgd.lr": np.array(0.25), "sgd.weight_decay": np.array(0.0)}
    updated, momentum = sorted(
        (put.name for put in session.get_outputs()), key=lambda name: "momentum" in name
    )
    assert {name.removesuffix("__next") for name in (updated, momentum)} < set(shapes)
    for rate, moved, kept in ((0.0, 0.75, 1.0), (0.5, 0.625, 1.5)):
        found = session.run([updated, momentum], {**feeds, "sgd.momentum": np.array(rate)})
        np.testing.assert_allclose(found[0], moved)
        np.testing.assert_allclose(found[1], kept)


def test_balanced_losses_and_the_norm_are_logged(
    sambac: Callable, sambarun: Callable, network: Path, tmp_path: Path
) -> None:
    words = ("--loss", "mse:logits,target", "--balance", "--max-grad-norm", 1, "--optimizer", "sgd")
    target, data, log = (tmp_path / name for name in ("n.pef", "data.npz", "log.csv"))
    assert sambac("compile", network, *_LOSS, *words, "-o", target).code == 0
    ones = np.ones((4, 8), np.float32)
    np.savez(data, x=ones, y=np.arange(4) % 3, target=ones[:, :3])
    result = sambarun(target, "--steps", 2, "--data", data, "--log-csv", log)
    assert result.code == 0, result.err
    header, *rows = log.read_text().splitlines()
    names = ["cross_entropy", "mse"]
    columns = header.split(",")
    assert columns[:4] == ["step", "epoch", *names]
    assert {"grad_norm", *(f"{name}__weight" for name in names)} == set(columns[4:])
    assert len(rows) == 2


def test_a_network_learns(
    sambac: Callable, sambarun: Callable, network: Path, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((64, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x[:, :3].argmax(axis=1))
    target, data = tmp_path / "n.pef", tmp_path / "data.npz"
    words = ("--optimizer", "adamw:lr=2e-2", "--accumulate")
    assert sambac("compile", network, *_LOSS, *words, "-o", target).code == 0
    run = ("--steps", 300, "--data", data, "--accumulate", 2, "--eval", "--data", data)
    result = sambarun(target, *run)
    assert result.code == 0, result.err
    assert f"{target}: 300 steps (37.5 epochs of 16 batches) in " in result.out
    assert "logits against y" in result.out
    accuracy = float(result.out.split("accuracy ")[1].split("%")[0])
    assert accuracy > 90


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--loss", "y"], "Error: --loss: of use only in training; add --train"),
        (["--freeze", "a", "--optimizer", "sgd"], "Error: --optimizer, --freeze: of use only in"),
        (["--max-grad-norm", "1", "--accumulate"], "--max-grad-norm, --accumulate: of use only"),
        (["--train", "--optimizer", "adm"], "There is no optimizer 'adm' (did you mean 'adam'?)"),
        (["--train", "--max-grad-norm", "0"], "--max-grad-norm is 0.0; a number above 0"),
        (["--train"], "logits"),
        (["--train", "--loss", "los"], "los"),
    ],
)
def test_wrong_options(sambac: Callable, network: Path, words: list[str], said: str) -> None:
    result = sambac("compile", network, *words)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert "Traceback" not in result.err


def test_all_wrong_optimizers_are_named(sambac: Callable, network: Path) -> None:
    words = ("--optimizer", "sdg:lr=1", "--optimizer", "sgd:rl=1")
    result = sambac("compile", network, *_LOSS, *words)
    assert result.code == 2
    first, second = result.err.splitlines()
    assert first.startswith("Error: --optimizer sdg:lr=1: ")
    assert second.startswith("--optimizer sgd:rl=1: ")


def test_a_program_without_updates_does_not_train(
    sambac: Callable, sambarun: Callable, network: Path, tmp_path: Path
) -> None:
    target = tmp_path / "n.pef"
    result = sambac("compile", network, *_LOSS, "-o", target)
    assert "  sections  train 1 FWD, 1 BCKWD; eval 1 FWD" in result.out
    np.savez(tmp_path / "data.npz", x=np.ones((4, 8), np.float32), y=np.zeros(4, np.int64))
    refused = sambarun(target, "--steps", 1, "--data", tmp_path / "data.npz")
    assert refused.code == 2
    assert "updates nothing; compile the model with --optimizer." in refused.err
