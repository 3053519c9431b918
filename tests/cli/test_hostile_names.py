"""Names come from files that nobody vouches for: commands show them, and no terminal obeys."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import onnx
from onnx import TensorProto, helper

NAMES = (
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202egnp.exe",
    "a\r\nb",
    "\x00",
    "\u2028",
    "\x7f",
    "\U000e0001",
)
"""Steer, hide, go back and begin a line; the last is a tag beyond 16 bits."""


def hostile() -> onnx.ModelProto:
    """A model in which everything that has a name has such a one."""
    names = [f"{name}{at}" for at in range(4) for name in NAMES]
    dims, inner, nodes, out = (names[len(NAMES) * at :][: len(NAMES)] for at in range(4))
    chain = ["x", *inner, out[0]]
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Neg" if at % 2 else "Abs", [read], [made], name=nodes[at % 8])
                for at, (read, made) in enumerate(pairwise(chain))
            ]
            + [helper.make_node("Identity", [inner[0]], [name]) for name in out[1:]],
            NAMES[0],
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in out],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name=NAMES[0],
    )


def test_no_command_prints_what_steers_a_terminal(
    sambac: Callable, sambarun: Callable, tmp_path: Path
) -> None:
    model, level_0, level_3 = (tmp_path / name for name in ("m.onnx", "m0.pef", "m3.pef"))
    onnx.save(hostile(), model)
    fine = (0,)
    for code, done in (
        (fine, sambac("compile", model, "-O0", "-o", level_0)),
        (fine, sambac("compile", model, "-o", level_3)),
        (fine, sambac("opt", model, "--diff")),
        (fine, sambac("inspect", level_0)),
        (fine, sambac("inspect", level_0, "--json")),
        (fine, sambac("explain", level_0)),
        (fine, sambac("explain", level_0, "--json")),
        (fine, sambac("verify", level_0)),
        ((1,), sambac("diff", level_0, level_3)),
        ((1,), sambac("diff", level_0, level_3, "--json")),
        (fine, sambarun(level_0, "--list")),
        (fine, sambarun(level_0, "--input", "*=random")),
        ((2,), sambarun(level_0, "--input", f"{NAMES[0]}=random")),
    ):
        assert done.code in code, done.err
        said = done.out + done.err
        assert said.replace("\n", "").isprintable(), ascii(said)
        if said.startswith(("{", "[")):
            assert json.loads(said)


def test_names_that_an_archive_would_mix_up_are_refused(
    sambac: Callable, sambarun: Callable, tmp_path: Path
) -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    for names in (("y", "y\0z"), ("y", "y.npy")):
        nodes = [
            helper.make_node(kind, ["x"], [name])
            for kind, name in zip(("Neg", "Abs"), names, strict=True)
        ]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in names]
        graph = helper.make_graph(nodes, "graph", [info], results)
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
        assert sambac("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.pef").code == 0
        done = sambarun(tmp_path / "m.pef", "--input", "x=ones", "--output", tmp_path / "o.npz")
        assert (done.code, done.out) == (2, "")
        assert "an .npz cannot tell" in done.err
        assert not (tmp_path / "o.npz").exists()


MODULE = """
import torch

def make():
    return torch.nn.Linear(2, 1), (torch.ones(1, 2),)
"""


def test_names_of_files_that_are_no_text(
    sambac: Callable, sambarun: Callable, tmp_path: Path
) -> None:
    latin = os.fsdecode(b"caf\xe9")
    folder = tmp_path / latin
    folder.mkdir()
    model, program, section = (folder / f"{latin}{end}" for end in (".onnx", ".pef", ".1.onnx"))
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [tensor]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    code = model.with_suffix(".py")
    code.write_text(MODULE)
    for done in (
        sambac("compile", model, "-o", program),
        sambarun(program, "--input", "x=ones"),
        sambac("inspect", program, "--html", folder / f"{latin}.html"),
        sambac("extract", program, "--section", "0", "-o", section),
        sambac("compile", f"{code}:make", "-o", program),
    ):
        assert (done.code, done.err) == (0, "")
