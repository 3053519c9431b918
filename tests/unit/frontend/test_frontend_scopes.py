"""Constants of subgraphs that have the name of a value around them."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from sambac import CompileOptions
from sambac.errors import CompileError
from sambac.frontend import load


def branching(outer: str, inner: str) -> onnx.ModelProto:
    """A model in whose branches a constant `w` stands, beside what is called so around them."""
    branch = f"b () => (float[2] b) <float[2] w = {{{inner}}}> {{ b = Identity(w) }}"
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        m (bool c, float[2] x) => (float[2] y) <{outer}> {{
            v = Add(x, x)
            i = If(c) <then_branch = {branch}, else_branch = {branch}>
            y = Add(i, v)
        }}""")


@pytest.mark.parametrize("outer", ["", "float[2] w = {1, 2}"])
def test_nothing_is_hidden_by_what_is_the_same(outer: str) -> None:
    load(branching(outer, "1, 2"), CompileOptions())


@pytest.mark.parametrize(
    "outer", ["float[2] w = {1, 3}", "float[1] w = {1}", "int64[2] w = {1, 2}"]
)
def test_what_differs_is_told(outer: str) -> None:
    with pytest.raises(CompileError, match="'w' is a constant of a subgraph and another value"):
        load(branching(outer, "1, 2"), CompileOptions())


@pytest.mark.parametrize("name", ["x", "v"])
def test_inputs_and_results_are_hidden_too(name: str) -> None:
    proto = branching("", "1, 2")
    for attribute in proto.graph.node[1].attribute:
        attribute.g.initializer[0].name = attribute.g.node[0].input[0] = name
    with pytest.raises(CompileError, match=f"'{name}' is a constant of a subgraph"):
        load(proto, CompileOptions())
