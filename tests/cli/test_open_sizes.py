"""Sizes that a program leaves open, where inputs are made up: 1, and a note says so, or said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest


def test_open_sizes_are_taken_as_one(
    sambac: Callable, sambarun: Callable, open_model: Path
) -> None:
    target = open_model.with_name("open.pef")
    sambac("compile", open_model, "-o", target)
    result = sambarun(target, "--input", "x=ones")
    assert (result.code, result.err) == (0, "Note: x: batch is taken as 1.\n")
    assert "1x3" in result.out
    for words in (("inspect", target, "--symbols"), ("explain", target, "x")):
        told = sambac(*words).out
        assert " open " in told
        assert " 0 B" not in told


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([None, 3, None], "2 unknown sizes are"),
        (["n", "n"], "n is"),
        (["n", "m"], "n, m are"),
        (["n", None, 2], "n, 1 unknown size are"),
        ([None], "1 unknown size is"),
    ],
)
def test_the_note_of_open_sizes_counts_those_without_names(
    sambac: Callable, sambarun: Callable, tmp_path: Path, shape: list, said: str
) -> None:
    ports = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"
    ]
    nodes = [onnx.helper.make_node("Neg", ["x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:])
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), tmp_path / "m.onnx")
    assert sambac("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.pef").code == 0
    result = sambarun(tmp_path / "m.pef", "--input", "x=ones")
    assert (result.code, result.err) == (0, f"Note: x: {said} taken as 1.\n")


@pytest.mark.parametrize(
    ("word", "code", "told"),
    [
        ("x=ones:5x4", 0, ""),
        ("x=random:7x4", 0, ""),
        ("*=random:7x4", 0, ""),
        ("x=random:7x5", 2, "Input 'x' has shape [7, 5]; float32[batch, 4] was expected."),
        ("x=random:7", 2, "Input 'x' has shape [7]; float32[batch, 4] was expected."),
        ("x=ones:", 2, "with sizes as in x=random:8x3."),
        ("x=ones:5,4", 2, "with sizes as in x=random:8x3."),
        ("x=zeros:5x4", 2, "expected x=@FILE.npy, x=random or x=ones"),
        ("x=ones:999999999x999999999x999999999", 2, "--input x=ones:999999999x"),
    ],
)
def test_sizes_of_made_up_inputs(
    sambac: Callable, sambarun: Callable, open_model: Path, word: str, code: int, told: str
) -> None:
    target = open_model.with_name("open.pef")
    assert sambac("compile", open_model, "-o", target).code == 0
    result = sambarun(target, "--input", word)
    assert result.code == code
    assert told in result.err
    if not code:
        assert not result.err
        assert f"{word.partition(':')[2][0]}x3" in result.out
