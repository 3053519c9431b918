"""Whole numbers keep all of their digits, and their order, as those of Python do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import sambac
import sambarun
from sambac.passes.legalize.exact_integers import ExactIntegers
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.legalize.integer_bounds import bounds

SHAPE = (5, 9)
ENDS = (
    -(2**63),
    -(2**33),
    -(2**32) - 1,
    -(2**31) - 1,
    -1,
    0,
    3,
    2**31,
    3 * 10**9,
    2**32,
    2**33 + 7,
)
"""Numbers whose upper halves are those of others, and whose lower ones are above 2^31."""


def numbers(dtype: str, seed: int) -> np.ndarray:
    """Return numbers of all sizes, many of them close to each other."""
    rng, kind = np.random.default_rng(seed), np.iinfo(dtype)
    whole = rng.integers(kind.min, kind.max, SHAPE, dtype=dtype, endpoint=True)
    ends = np.asarray([around(end, dtype) for end in ENDS], dtype)
    return np.where(rng.random(SHAPE) < 0.5, rng.choice(ends, SHAPE), whole)


def around(number: int, dtype: str) -> int:
    """Return `number` as a type keeps it that goes around."""
    kind = np.iinfo(dtype)
    return (int(number) - int(kind.min)) % 2**kind.bits + int(kind.min)


def rows(function: Callable[[Sequence[int]], int], x: np.ndarray) -> np.ndarray:
    """Return what `function` makes of each row of `x`, as numbers of Python."""
    made = [around(function([int(item) for item in row]), str(x.dtype)) for row in x]
    return np.asarray(made, x.dtype)


def elements(function: Callable[..., int], *operands: np.ndarray) -> np.ndarray:
    """Return what `function` makes of the elements of operands, as numbers of Python."""
    dtype, pairs = operands[0].dtype, zip(*(x.ravel() for x in operands), strict=True)
    made = [around(function(*map(int, pair)), str(dtype)) for pair in pairs]
    return np.asarray(made, dtype).reshape(operands[0].shape)


def run(text: str, feeds: dict[str, np.ndarray], opset: int = 21) -> np.ndarray:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\ng {text}')
    with sambarun.load(sambac.compile(model)) as executable:
        found: np.ndarray = executable.run(feeds)["y"]
    return found


REDUCTIONS: dict[str, Callable[[Sequence[int]], int]] = {
    "ReduceL1": lambda row: sum(map(abs, row)),
    "ReduceMax": max,
    "ReduceMin": min,
    "ReduceProd": math.prod,
    "ReduceSum": sum,
    "ReduceSumSquare": lambda row: sum(item * item for item in row),
}


CASES = [
    (op_type, sizes)
    for op_type in REDUCTIONS
    for sizes in ("5,9", "5,n", "n,m")
    if op_type != "ReduceProd" or sizes == "5,9"  # open ones go by float64
]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
@pytest.mark.parametrize(("op_type", "sizes"), CASES)
def test_reductions_have_all_digits(op_type: str, dtype: str, sizes: str):
    x = numbers(dtype, 1)
    text = (
        f"({dtype}[{sizes}] x) => ({dtype}[r] y) <int64[1] axes = {{-1}}>"
        f"{{ y = {op_type} <keepdims = 0> (x, axes) }}"
    )
    np.testing.assert_array_equal(run(text, {"x": x}), rows(REDUCTIONS[op_type], x))


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMax", "ReduceProd"])
@pytest.mark.parametrize("attributes", ["", "axes = [0, 1], keepdims = 1", "axes = [-2]"])
def test_axes_may_be_attributes_or_all(op_type: str, attributes: str):
    x = numbers("int64", 2)
    given = f"<{attributes}>" if attributes else ""
    text = f"(int64[5,9] x) => (int64[a,b] y) {{ y = {op_type} {given} (x) }}"
    flat = x.T if "-2" in attributes else x.reshape(1, -1)
    wanted = rows(REDUCTIONS[op_type], flat).reshape(1, -1)
    np.testing.assert_array_equal(run(text, {"x": x}, opset=12), wanted)


@pytest.mark.parametrize("opset", [11, 13, 17, 18])
@pytest.mark.parametrize("op_type", ["ReduceL1", "ReduceSumSquare"])
def test_axes_go_to_where_a_sum_of_the_opset_has_them(op_type: str, opset: int):
    x = numbers("int32", 3)
    given, operand = ("", ", axes") if opset >= 18 else (", axes = [-1]", "")
    text = (
        f"(int32[5,9] x) => (int32[5] y) <int64[1] axes = {{-1}}>"
        f"{{ y = {op_type} <keepdims = 0{given}> (x{operand}) }}"
    )
    np.testing.assert_array_equal(run(text, {"x": x}, opset), rows(REDUCTIONS[op_type], x))


ELEMENTWISE: dict[str, tuple[str, Callable[..., int]]] = {
    "Max": ("Max(x, z)", max),
    "Max of three": ("Max(x, z, x)", max),
    "Min": ("Min(x, z)", min),
    "Clip": ("Clip(x, low, high)", lambda x, z: min(max(x, -(2**31) - 9), 3 * 10**9)),
    "Clip below": ("Clip(x, zero)", lambda x, z: max(x, 0)),
    "Sign": ("Sign(x)", lambda x, z: (x > 0) - (x < 0)),
    "Relu": ("Relu(x)", lambda x, z: max(x, 0)),
    "Mod of C": ("Mod<fmod = 1>(x, d)", lambda x, z: _rest(x, z or 3)),
}


def _rest(x: int, y: int) -> int:
    return (abs(x) % abs(y)) * (1 if x > 0 else -1)


@pytest.mark.parametrize("sizes", ["5,9", "n,m"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elements_keep_their_order(name: str, sizes: str):
    expression, function = ELEMENTWISE[name]
    x, z = numbers("int64", 3), numbers("int64", 4)
    text = (
        f"(int64[{sizes}] x, int64[{sizes}] z, int64[{sizes}] d) => (int64[{sizes}] y)"
        f"<int64 low = {{{-(2**31) - 9}}}, int64 high = {{{3 * 10**9}}}, int64 zero = {{0}}>"
        f"{{ y = {expression} }}"
    )
    found = run(text, {"x": x, "z": z, "d": np.where(z == 0, np.int64(3), z)})
    np.testing.assert_array_equal(found, elements(function, x, z))


def test_the_lowest_number_by_minus_one_leaves_no_rest():
    text = "(int64[2] x, int64[2] d) => (int64[2] y) { y = Mod <fmod = 1> (x, d) }"
    feeds = {"x": np.asarray([-(2**63), 7]), "d": np.asarray([-1, -2])}
    np.testing.assert_array_equal(run(text, feeds), [0, 1])


def test_unsigned_remainders_have_all_digits():
    text = "(uint64[2] x, uint64[2] d) => (uint64[2] y) { y = Mod <fmod = 1> (x, d) }"
    feeds = {
        "x": np.asarray([2**64 - 1, 2**63 + 1], np.uint64),
        "d": np.asarray([10, 7], np.uint64),
    }
    np.testing.assert_array_equal(run(text, feeds), [(2**64 - 1) % 10, (2**63 + 1) % 7])


def test_large_sums_have_all_digits():
    x = np.full(2**21 + 3, 2**62 + 1)
    text = "(int64[n] x) => (int64[1] y) { y = ReduceSum (x) }"
    assert run(text, {"x": x}) == around(len(x) * (2**62 + 1), "int64")
    fixed = text.replace("[n]", f"[{len(x)}]")
    assert run(fixed, {"x": x}) == around(len(x) * (2**62 + 1), "int64")


def test_what_is_rewritten_stays():
    model: Any = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (int64[3,4] x, int64[3,4] z) => (int64[3,4] a, int64[1,1] b, int64[1,1] c, int32[1,1] e)
        { a = Max(x, z)  b = ReduceMin(x)  c = ReduceSum(x)  d = Cast<to = 6>(x)  e = ReduceSum(d)
        }"""
    )
    graph = ir.serde.deserialize_model(model)
    InferShapes()(graph)
    assert ExactIntegers()(graph).modified
    assert not ExactIntegers()(graph).modified


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        ("y = Cast<to = 7>(b)", (0, 1)),
        ("s = Shape(b)  y = Gather(s, zero)", (0, 2**31 - 1)),
        ("c = Cast<to = 7>(b)  m = Mul(c, five)  y = Sub(zero, m)", (-5, 0)),
        ("y = Mod(x, five)", (0, 4)),
        ("y = Mod<fmod = 1>(x, five)", (-(2**63), 2**63 - 1)),
        ("y = Where(b, five, zero)", (0, 5)),
        ("y = Concat<axis = 0>(line, line)", (-7, 9)),
        ("y = Mul(x, five)", (-(2**63), 2**63 - 1)),
    ],
)
def test_bounds(made: str, wanted: tuple[int, int]):
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        g (bool[3] b, int64[3] x) => (int64[n] y)
        <int64 zero = {{0}}, int64 five = {{5}}, int64[2] line = {{-7, 9}}> {{ {made} }}"""
    )
    graph = ir.serde.deserialize_model(model)
    InferShapes()(graph)
    assert bounds(graph.graph.outputs[0]) == wanted


POWERS = {"scalar": [11], "vector": [0, 1, 2, 3, 40], "column": [[5], [63]]}


@pytest.mark.parametrize("kind", ["int8", "uint16", "int16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("of", ["int8", "int32", "int64"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", POWERS)
def test_powers_go_around(name: str, constant: bool, of: str, kind: str):
    """The kernels go by float64, and give the lowest number for what is too large."""
    ends = np.iinfo(kind)
    x = np.array([[3, 7, 2, 5, ends.max], [1, 0, ends.min, ends.max // 3, 6]], kind)
    powers = np.array(POWERS[name], of)
    powers = powers.reshape(()) if name == "scalar" else powers
    sizes = f"[{', '.join(map(str, powers.shape))}]" if powers.ndim else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g ({kind}[A, B] x, {of}{sizes} n) => (y)
        {{ y = Pow(x, n) }}"""
    )
    feeds = {"x": x, "n": powers}
    if constant:
        model.graph.initializer.append(onnx.numpy_helper.from_array(feeds.pop("n"), "n"))
        del model.graph.input[1]
    around = 2**ends.bits
    pairs = zip(*(part.ravel() for part in np.broadcast_arrays(x, powers)), strict=True)
    wanted = [pow(int(one), int(power), around) for one, power in pairs]
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run(feeds)["y"]
    assert (found.dtype, found.shape) == (kind, x.shape)
    assert [int(value) % around for value in found.ravel()] == wanted


def test_powers_below_0_are_those_of_the_kernel():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (int64[4] x, int8[4] n) => (y)
        { y = Pow(x, n) }"""
    )
    feeds = {"x": np.array([1, -1, 5, 3]), "n": np.array([-3, -3, -1, 41], np.int8)}
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run(feeds)["y"]
    assert found.tolist() == [1, -1, 0, (3**41 + 2**63) % 2**64 - 2**63]
