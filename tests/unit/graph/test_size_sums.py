"""Sizes that are open, as sums."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from sambac.graph.size_sums import SizeSums

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,past,4] x, float[N,1,4] y, int64[3] given) => (float[N,M,4] c, int64[1] last)
<int64 one = {1}, int64 two = {2}, int64[2] pair = {7, -1}, int64[1] row = {1},
 float real = {2.5}, int64[2,1] column = {1, 2}, int64[1,2] line = {3, 4}>
{
    c = Concat <axis = 1> (x, y)
    d = Identity (c)
    all = Shape (x)
    tail = Shape <start = 1> (x)
    end = Shape <start = -1> (x)
    past = Gather (all, one)
    back = Gather (all, minus)
    more = Add (past, one)
    fewer = Sub (past, two)
    moved = Reshape (more, row)
    cast = Cast <to = 7> (moved)
    joined = Concat <axis = 0> (pair, cast, tail)
    product = Mul (past, two)
    last = Gather (given, row)
    flag = Cast <to = 9> (past)
    again = Cast <to = 7> (flag)
    small = Cast <to = 3> (past)
    half = Cast <to = 7> (real)
    table = Add (column, line)
}
"""


@pytest.fixture(scope="module")
def values() -> dict[str, ir.Value]:
    text = TEXT.replace("{3, 4}>", "{3, 4}, int64 minus = {-1}>")
    graph = ir.from_onnx_text(text).graph
    found = {value.name: value for node in graph for value in node.outputs}
    for value in (*graph.inputs, *graph.initializers.values()):
        found[value.name] = value
    found["d"].shape = ir.Shape(["N", "M", 4])
    for name, size in {"all": 3, "tail": 2, "end": 1, "cast": 1, "pair": 2}.items():
        found[name].shape = ir.Shape([size])
    return {str(name): value for name, value in found.items()}


@pytest.mark.parametrize(
    ("name", "axis", "expected"),
    [
        ("x", 0, {"N": 1}),
        ("x", 2, {"": 4}),
        ("c", 1, {"past": 1, "": 1}),
        ("d", 1, {"past": 1, "": 1}),
        ("d", 0, {"N": 1}),
        ("more", 0, None),  # of unknown shape
    ],
)
def test_sizes(values: dict[str, ir.Value], name: str, axis: int, expected: object) -> None:
    assert SizeSums().size(values[name], axis) == expected


@pytest.mark.parametrize(
    ("name", "index", "expected"),
    [
        ("past", 0, {"past": 1}),
        ("back", 0, {"": 4}),
        ("end", 0, {"": 4}),
        ("more", 0, {"past": 1, "": 1}),
        ("fewer", 0, {"past": 1, "": -2}),
        ("cast", 0, {"past": 1, "": 1}),
        ("joined", 0, {"": 7}),
        ("joined", 1, {"": -1}),
        ("joined", 2, {"past": 1, "": 1}),
        ("joined", 3, {"past": 1}),
        ("joined", 4, {"": 4}),
        ("joined", 5, None),
        ("product", 0, None),
        ("last", 0, None),  # an input says it
        ("given", 0, None),
        ("again", 0, None),  # 1, but for 0
        ("small", 0, None),  # of few bits
        ("half", 0, None),
        ("table", 1, None),
    ],
)
def test_numbers(values: dict[str, ir.Value], name: str, index: int, expected: object) -> None:
    assert SizeSums().number(values[name], index) == expected


def test_a_name_that_is_unknown_is_no_size() -> None:
    assert SizeSums().size(ir.val("x", ir.DataType.FLOAT, ir.Shape([None, 3])), 0) is None


def test_long_chains_are_not_followed() -> None:
    value = ir.val("n", ir.DataType.INT64, ir.Shape([]))
    for _ in range(5000):
        value = ir.node("Add", [value, value]).outputs[0]
        value.shape = ir.Shape([])
    assert SizeSums().number(value) is None


@pytest.mark.parametrize(("known", "expected"), [(True, {"N": 1}), (False, None)])
def test_sizes_of_reductions_are_kept_along_axes_that_are_known(
    known: bool, expected: object
) -> None:
    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(["N", 4]))
    axes = ir.val("axes", ir.DataType.INT64, ir.Shape([1]))
    axes.const_value = ir.tensor([1]) if known else None
    y = ir.node("ReduceSum", [x, axes]).outputs[0]
    y.shape = ir.Shape([None, 1])
    assert SizeSums().size(y, 0) == expected
