"""Sums over no elements are zeros, whatever onnxruntime's kernels make of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

_SHAPES = [
    ("3,0", "0,4", "3,4"),
    ("3,0", "0", "3"),
    ("0", "0,4", "4"),
    ("0", "0", ""),
    ("2,3,0", "0,4", "2,3,4"),
    ("2,1,3,0", "5,0,4", "2,5,3,4"),
]


def _result(text: str, **feeds: np.ndarray) -> np.ndarray:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> g {text}')
    with sambarun.load(sambac.compile(model)) as executable:
        return executable.run(feeds)["y"]


def _empty(shape: str) -> np.ndarray:
    return np.zeros([int(size) for size in shape.split(",")], np.float32)


@pytest.mark.parametrize(("left", "right", "result"), _SHAPES)
def test_a_product_over_nothing_is_zero(left: str, right: str, result: str) -> None:
    text = f"(float[{left}] a, float[{right}] b, float[9] c) => (float[{result}] y, float[9] z)"
    # What memory held before is no zero.
    body = "{ z = Exp (c) y = MatMul (a, b) }"
    a, b = _empty(left), _empty(right)
    found = _result(f"{text} {body}", a=a, b=b, c=np.ones(9, np.float32))
    expected = a @ b
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("shape", [(0, 4, 3), (0, 4), (2, 0, 3), (0, 0)])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), (0, -1)])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_sum_over_nothing_is_zero(
    shape: tuple[int, ...], axes: tuple[int, ...], kept: int
) -> None:
    size = ",".join(map(str, shape))
    listed = ",".join(map(str, axes))
    expected = np.zeros(shape, np.float32).sum(axes, keepdims=bool(kept))
    result = ",".join(map(str, expected.shape))
    found = _result(
        f"(float[{size}] x) => (float[{result}] y) <int64[{len(axes)}] axes = {{{listed}}}>"
        f"{{ y = ReduceSum <keepdims = {kept}> (x, axes) }}",
        x=np.zeros(shape, np.float32),
    )
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("attributes", ["beta = 2.0", "beta = 0.0", "transA = 1, transB = 1"])
@pytest.mark.parametrize("shape", ["4", "3,4", "3,1"])
def test_what_is_added_to_a_product_over_nothing_is_scaled(attributes: str, shape: str) -> None:
    turned = "transA" in attributes
    left, right = ("0,3", "4,0") if turned else ("3,0", "0,4")
    c = np.arange(1, 1 + np.prod([int(s) for s in shape.split(",")]), dtype=np.float32)
    c = c.reshape([int(size) for size in shape.split(",")])
    text = f"(float[{left}] a, float[{right}] b, float[{shape}] c) => (float[3,4] y)"
    found = _result(
        f"{text} {{ y = Gemm <{attributes}> (a, b, c) }}", a=_empty(left), b=_empty(right), c=c
    )
    factor = {"beta = 2.0": 2, "beta = 0.0": 0}.get(attributes, 1)
    assert np.array_equal(found, np.broadcast_to(factor * c, (3, 4)))


@pytest.mark.parametrize("opset", [1, 6, 7, 8, 11, 12, 13])
def test_programs_of_old_opsets_have_no_operators_of_newer_ones(opset: int) -> None:
    """As `Expand`, which came with opset 8."""
    axes = ("<int64[1] axes = {1}>", "(x, axes)") if opset >= 13 else ("", "<axes = [1]>(x)")
    text = "g (float[3,0,2] x, float[3,0] a, float[0,4] b) => (float[3,1,2] y, float[3,4] z)"
    model = onnx.parser.parse_model(
        f'<ir_version: {3 if opset < 9 else 7}, opset_import: ["": {opset}]> {text} {axes[0]}'
        f"{{ y = ReduceSum{axes[1]} z = MatMul(a, b) }}"
    )
    feeds = {name: _empty(shape) for name, shape in (("x", "3,0,2"), ("a", "3,0"), ("b", "0,4"))}
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run(feeds)
    if opset >= 8:  # before, what onnxruntime makes of it
        assert found["y"].shape == (3, 1, 2)
        assert not found["y"].any()
    assert found["z"].shape == (3, 4)
    assert not found["z"].any()


_OF_BYTES = "(uint8[{0}] a, uint8[{1}] b, uint8 zero, float scale) => ({2} y)"
_SUMS = {
    "Conv": ("(float[2,0,3,3] a, float[4,0,1,1] b, float[4] c) => (float[2,4,3,3] y)", "(a, b, c)"),
    "Conv without a bias": ("(float[2,0,3] a, float[4,0,2] b) => (float[2,4,2] y)", "(a, b)"),
    "ConvInteger": (_OF_BYTES.format("1,0,3,3", "4,0,1,1", "int32[1,4,3,3]"), "(a, b)"),
    "MatMulInteger": (_OF_BYTES.format("3,0", "0,4", "int32[3,4]"), "(a, b)"),
    "QLinearMatMul": (
        _OF_BYTES.format("3,0", "0,4", "uint8[3,4]"),
        "(a, scale, zero, b, scale, zero, scale, zero)",
    ),
}


@pytest.mark.parametrize("name", _SUMS)
def test_other_sums_over_nothing(name: str) -> None:
    """Of what is added to them alone: onnxruntime leaves these results unwritten."""
    (ports, operands), op_type = _SUMS[name], name.partition(" ")[0]
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 23]> g {ports} {{ y = {op_type} {operands} }}'
    )
    types = {port.name: port.type.tensor_type for port in model.graph.input}
    feeds = {
        name: np.full(
            [size.dim_value for size in of.shape.dim],
            3,
            onnx.helper.tensor_dtype_to_np_dtype(of.elem_type),
        )
        for name, of in types.items()
    }
    if "c" in feeds:
        feeds["c"] = np.arange(4, dtype=np.float32)
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run(feeds)["y"]
    expected = 3 if name == "QLinearMatMul" else 0
    if "c" in feeds:
        assert np.array_equal(found, np.broadcast_to(feeds["c"][:, None, None], found.shape))
    else:
        assert found.size
        assert (found == expected).all()


def test_no_channels_and_open_sizes() -> None:
    text = "g (float[N,0,3,3] x, float[4,0,1,1] w) => (float[N,4,3,3] y) { y = Conv (x, w) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {text}')
    with pytest.raises(sambac.CompileError, match="has no channels, and other sizes are open"):
        sambac.compile(model)
