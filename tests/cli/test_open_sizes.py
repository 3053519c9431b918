"""Sizes that a program leaves open, where inputs are made up: they are 1, and a note says so."""

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
