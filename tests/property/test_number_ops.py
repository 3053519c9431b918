"""What a graph does to numbers is, bit for bit, what the functions of numpy do."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sambac.errors import CompileError
from sambac.graph.editor import Editor
from sambac.numerics import FORMATS, SOURCE_A, SOURCE_B, parts
from sambac.passes.device_numbers.number_ops import NumberSpec, put, second_part
from sambac.passes.legalize.check_legal import check_legal
from sambac.passes.pipelines import SELECT_TRAINING_KERNELS, SIMPLIFY

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")
"""How far onnxruntime optimises: sections run with the second."""
RULES = ("host", "packer", "truncate")
SPECS = [
    *(NumberSpec(form) for form in FORMATS.values() if not form.block and form.digits < 24),
    *(NumberSpec(form, rule) for form in FORMATS.values() if form.block for rule in RULES),
    *(NumberSpec(digits=digits) for digits in (5, 7, 10, 11)),
    NumberSpec(FORMATS["Bfp8_b"], digits=5),
]
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1.2e-38, -1.2e-38, 6e4, 7e4, 2e5]

numbers = st.one_of(st.floats(width=32, allow_nan=False, allow_subnormal=False),
                    st.sampled_from(EDGES).map(float))  # fmt: skip


def graph(shape: str, spec: NumberSpec, opset: int = 20) -> ir.Model:
    kind = f"float[{shape}]" if shape else "float"
    model = ir.from_onnx_text(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g ({kind} x) => ({kind} y)'
        "{ y = Identity (x) }"
    )
    editor = Editor(model)
    (node,) = model.graph
    editor.rewrite(node)
    node.replace_input_with(0, put(editor, model.graph.inputs[0], spec))
    return model


def run(model: ir.Model, x: np.ndarray, level: str = "ORT_ENABLE_BASIC") -> np.ndarray:
    return opened(model, level).run(None, {"x": x})[0]


def opened(model: ir.Model, level: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    return ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)


@cache
def session(spec: NumberSpec, level: str) -> ort.InferenceSession:
    return opened(graph("2, 20", spec), level)


def same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.suffix}_{spec.rule}")
@settings(deadline=None, max_examples=15)
@given(x=arrays.arrays(np.float32, (2, 20), elements=numbers))
def test_a_graph_rounds_as_numpy_does(spec: NumberSpec, x: np.ndarray) -> None:
    for level in LEVELS:
        same_bits(session(spec, level).run(None, {"x": x})[0], spec.of(x))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.suffix}_{spec.rule}")
@pytest.mark.parametrize("opset", [13, 18, 23])
def test_no_pass_takes_a_rounding_away(spec: NumberSpec, opset: int) -> None:
    scale = 2.0 ** np.random.default_rng(1).integers(-9, 9, (2, 3, 40))
    x = (np.random.default_rng(0).standard_normal((2, 3, 40)) * scale).astype(np.float32)
    model = graph("2, 3, 40", spec, opset)
    for step in (*SIMPLIFY, *SELECT_TRAINING_KERNELS):
        step(model)
    assert check_legal(model) == []
    same_bits(run(model, x), spec.of(x))


@pytest.mark.parametrize(("shape", "axis"), [((40, 3), 0), ((2, 35, 3), 1), ((16,), 0), ((5, 4), 0),
                                             ((64, 2), -2), ((), -1)])  # fmt: skip
def test_blocks_go_along_any_axis(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    for form in ("Bfp4", "Bfp8_b"):
        spec = NumberSpec(FORMATS[form], axis=axis)
        found = run(graph(", ".join(map(str, shape)), spec), x)
        same_bits(found, spec.of(x))


def test_one_size_may_be_open() -> None:
    x = np.random.default_rng(2).standard_normal((7, 24)).astype(np.float32)
    spec = NumberSpec(FORMATS["Bfp8_b"])
    same_bits(run(graph("N, 24", spec), x), spec.of(x))
    for shape in ("7, N", "N, M, 24"):
        with pytest.raises(CompileError, match=r"'x' is to be rounded to blocks.*--input"):
            graph(shape, spec)


def test_what_is_no_number_stays_so() -> None:
    x = np.array([[np.nan, 1, 2, 3], [4, 5, 6, 7]], np.float32)
    for spec in SPECS:
        found = run(graph("2, 4", spec), x)
        assert np.isnan(found[0, 0]), spec
        same_bits(found[1], spec.of(x)[1])


def test_the_second_part_of_an_operand() -> None:
    x = np.random.default_rng(0).standard_normal((2, 20)).astype(np.float32)
    x[0, :3] = np.inf, -np.inf, 0
    for source in (SOURCE_A, SOURCE_B):
        model = graph("2, 20", NumberSpec())
        editor = Editor(model)
        (node,) = model.graph
        editor.rewrite(node)
        node.replace_input_with(0, second_part(editor, model.graph.inputs[0], source))
        same_bits(run(model, x), parts(x, source)[1])
