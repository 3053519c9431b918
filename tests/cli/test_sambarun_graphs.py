"""`sambarun` on a program of several graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

import sambac


def test_a_graph_by_name(sambarun: Callable[..., Any], tmp_path: Path) -> None:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    sources = []
    for name, kind in (("first", "Exp"), ("second", "Neg")):
        graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"])], name, info[:1], info[1:])
        opsets = [helper.make_opsetid("", 18)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        sources.append(sambac.GraphSource(name, model))
    path = tmp_path / "two.pef"
    sambac.compile_graphs(sources).save(path)
    listed = sambarun(path, "--list").out
    assert all(
        f"{way} of '{g}'" in listed for way in ("Inputs", "Outputs") for g in ("first", "second")
    )
    values = {
        graph: sambarun(path, *words, "--input", "*=ones").out.split()[-2]
        for graph, words in {"first": (), "second": ("--graph", "second")}.items()
    }
    assert values == {"first": "2.718", "second": "-1"}
    missing = sambarun(path, "--graph", "third", "--input", "*=ones")
    assert missing.code == 2
    assert "'first', 'second'" in missing.err
