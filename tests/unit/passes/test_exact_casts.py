"""Casts and quantisations round as ONNX says: exhaustively for 16 bits, at all levels."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import sambac
import sambarun
from sambac.passes.legalize.exact_casts import ExactCasts
from sambac.passes.legalize.infer_shapes import InferShapes

FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")

TYPES: dict[str, Any] = {
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float": np.float32,
    "double": np.float64,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
}
WIDE = ("float16", "bfloat16", "float", "double")

pytestmark = pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\ng {text}')


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray], level: str) -> np.ndarray:
    program = sambac.compile(model, options=sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found: np.ndarray = executable.run(feeds)["y"]
    return found


def cast(x: np.ndarray, source: str, target: str, attributes: str = "") -> list[np.ndarray]:
    """Return what runs at two levels, and what is folded, make of `x`."""
    to = onnx.TensorProto.DataType.Value(target.upper())
    node = f"y = Cast <to = {to}{attributes}> (x)"
    model = parsed(f"({source}[n] x) => ({target}[n] y) {{ {node} }}")
    constant = parsed(f"() => ({target}[{x.size}] y) {{ {node} }}")
    constant.graph.initializer.append(onnx.numpy_helper.from_array(x, "x"))
    return [run(model, {"x": x}, level) for level in ("O0", "O3")] + [run(constant, {}, "O3")]


def require_equal(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


def all_numbers(source: str) -> np.ndarray:
    """Return all numbers of a type of at most 16 bits."""
    kind = np.dtype(TYPES[source])
    return np.arange(256**kind.itemsize).astype(f"u{kind.itemsize}").view(kind)


def near_ties(target: str) -> np.ndarray:
    """Return the numbers of a type, what is halfway between them, and the neighbours of both."""
    values = all_numbers(target).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    ends = np.asarray([1, 1.05, 1.0625, 1.07, 1.2, np.inf, np.nan])
    seen = np.concatenate([values, (values[1:] + values[:-1]) / 2, values[-1] * ends])
    seen = np.concatenate([seen, -seen]).astype(np.float32)
    up, down = (np.nextafter(seen, np.float32(end)) for end in (np.inf, -np.inf))
    return np.concatenate([seen, up, down])


def rounded(x: np.ndarray, target: str, saturate: int) -> np.ndarray:
    kind = TYPES[target]
    if saturate:
        most = float(ml_dtypes.finfo(kind).max)
        x = np.where(np.isnan(x), x, np.clip(x, -most, most))
    return x.astype(kind)


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("target", FLOAT8)
def test_casts_to_eight_bits_round_to_the_nearest(target: str, saturate: int, source: str):
    small = np.dtype(TYPES[source]).itemsize == 2
    x = all_numbers(source) if small else near_ties(target).astype(TYPES[source])
    wanted = rounded(x.astype(np.float32), target, saturate)
    for found in cast(x, source, target, f", saturate = {saturate}"):
        require_equal(found, wanted)


@pytest.mark.parametrize("target", ["int4", "uint4"])
@pytest.mark.parametrize("source", [*WIDE, *FLOAT8])
def test_casts_to_four_bits_cut(source: str, target: str):
    kind = ml_dtypes.iinfo(TYPES[target])
    numbers = np.arange(-40, 80) / 4
    x = numbers[(numbers > kind.min - 1) & (numbers < kind.max + 1)].astype(TYPES[source])
    wanted = np.trunc(x.astype(np.float64)).astype(np.int8).astype(TYPES[target])
    for found in cast(x, source, target):
        require_equal(found, wanted)


@pytest.mark.parametrize("source", [*FLOAT8, *WIDE])
def test_only_zeros_are_false(source: str):
    ends = np.asarray([0.0, -0.0, 1.0, -1.0, 1e-9, np.nan, np.inf]).astype(TYPES[source])
    x = all_numbers(source) if source in FLOAT8 else ends
    for found in cast(x, source, "bool"):
        np.testing.assert_array_equal(found, x.astype(np.float64) != 0)


SCALES = {
    "": 0.75,
    ", axis = 0": [0.5, 0.75, 2.0, 1e-6],
    ", axis = 1, block_size = 4": [[0.5, 3.0, 1.0], [1.0, 1e-6, 2.0], [4.0] * 3, [0.1] * 3],
}
"""Scales of 4 x 12 numbers, by what a node says of their axes."""


def quantizing(x: np.ndarray, target: str, saturate: int, axes: str) -> tuple[Any, np.ndarray]:
    """Return a model that quantises 4 x 12 numbers, and the quotients in float32."""
    kind, source = x.dtype, "float16" if x.dtype == np.float16 else "float"
    scale = np.asarray(SCALES[axes]).astype(kind)
    said = f"saturate = {saturate}{axes}"
    model = parsed(
        f"({source}[m,12] x) => ({target}[m,12] y) {{ y = QuantizeLinear <{said}> (x, s, z) }}"
    )
    zero = np.zeros(scale.shape, np.float32).astype(TYPES[target])
    for name, array in (("s", scale), ("z", zero)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    wide = scale.astype(np.float32)
    full = np.repeat(wide, 4, 1) if wide.ndim == 2 else wide.reshape(-1, 1)
    return model, x.astype(np.float32) / full


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("axes", SCALES)
@pytest.mark.parametrize("target", ["int4", "uint4", "int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("source", ["float16", "float"])
def test_quotients_stay_at_their_end(source: str, target: str, axes: str, level: str):
    row = [0, -0.5, 0.6, 2.5, -60000, 60000, np.inf, -np.inf, 7.5, -8.5, 127.5, 300]
    x = np.asarray([row, row[::-1], row, row[::-1]]).astype(TYPES[source])
    model, quotients = quantizing(x, target, 1, axes)
    kind = ml_dtypes.iinfo(TYPES[target])
    wanted = np.clip(np.rint(quotients), kind.min, kind.max).astype(np.int32)
    require_equal(run(model, {"x": x}, level), wanted.astype(TYPES[target]))


@pytest.mark.parametrize("axes", SCALES)
@pytest.mark.parametrize("target", FLOAT8)
@pytest.mark.parametrize("source", ["float16", "float"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_quotients_of_eight_bits_round(saturate: int, source: str, target: str, axes: str):
    limits = [240.0, 247, 464, 465, 480, 495, 497, 57344, 61000, 61440, 63000, np.inf]
    x = np.asarray([limits, limits[::-1], np.negative(limits), limits]).astype(TYPES[source])
    model, quotients = quantizing(x, target, saturate, axes)
    wanted = rounded(quotients, target, saturate)
    for level in ("O0", "O3"):
        require_equal(run(model, {"x": x}, level), wanted)


def test_what_is_rewritten_stays():
    nodes = itertools.chain(
        (f"c{to} = Cast <to = {to}, saturate = 0> (x)" for to in (9, 17, 19, 21, 22)),
        (
            f"q{to} = QuantizeLinear <output_dtype = {to}, saturate = 0> (h, s)"
            for to in (3, 17, 19)
        ),
    )
    outputs = "int4[3] c22, uint4[3] c21, float8e5m2[3] c19, float8e4m3fn[3] c17, bool[3] c9"
    quantized = "int8[3] q3, float8e4m3fn[3] q17, float8e5m2[3] q19"
    model: Any = parsed(
        f"(float8e4m3fn[3] x, float16[3] h, float16 s) => ({outputs}, {quantized})"
        f"{{ {' '.join(nodes)} }}"
    )
    graph = ir.serde.deserialize_model(model)
    InferShapes()(graph)
    assert ExactCasts()(graph).modified
    assert not ExactCasts()(graph).modified
