"""Products that read others than what they are given, and what onnxruntime fuses wrongly itself."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import sambac
import sambarun
from sambac.graph.control_flow import Values, scan
from sambac.graph.editor import Editor
from sambac.graph.nodes import all_nodes
from sambac.passes.pipelines import SELECT_TRAINING_KERNELS, SIMPLIFY
from sambac.passes.runner import PassContext
from sambac.tuning.host import empty_model

_MODEL = """
<ir_version: 10, opset_import: ["" : 23]>
g ({0}[2,4,5] w, {0}[4] v) => ({0}[2,5] y) {{ t = Transpose <perm = [0, 2, 1]> (w) y = MatMul (t, v) }}
"""  # noqa: E501


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(
    ("name", "dtype"), [("float", np.float32), ("float16", np.float16), ("double", np.float64)]
)
def test_a_transposed_matrix_times_a_vector(
    name: str, dtype: type[np.generic], level: sambac.options.Level
) -> None:
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((2, 4, 5)), rng.standard_normal(4)
    feeds = {"w": w.astype(dtype), "v": v.astype(dtype)}
    model = onnx.parser.parse_model(_MODEL.format(name))
    with sambarun.load(sambac.compile(model, sambac.CompileOptions(level=level))) as executable:
        result = executable.run(feeds)["y"]
    np.testing.assert_allclose(result, w.transpose(0, 2, 1) @ v, rtol=1e-2, atol=1e-2)


_LEFT = {
    "divided": "t = Transpose <perm = [0, 2, 1]> (w) s = Div (t, k)",
    "scaled twice": "t = Transpose <perm = [0, 2, 1]> (w) r = Mul (t, k) s = Mul (k, r)",
    "of open rank": "q = Squeeze (w) s = Transpose <perm = [0, 2, 1]> (q)",
}


@pytest.mark.parametrize("vector", ["float[4] v", "float[a, b] u"])
@pytest.mark.parametrize("left", _LEFT)
def test_a_transposed_matrix_that_is_scaled_times_a_vector(left: str, vector: str) -> None:
    squeezed = "v = Squeeze (u)" if "u" in vector.split() else ""
    sizes = "l, m, n" if "rank" in left else "2, 4, 5"
    text = f"""
        <ir_version: 10, opset_import: ["" : 23]>
        g (float[{sizes}] w, {vector}) => (float[r, c] y) <float[1] k = {{4.0}}>
        {{ {_LEFT[left]} {squeezed} y = MatMul (s, v) }}
    """
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 5), 4))
    with sambarun.load(sambac.compile(onnx.parser.parse_model(text))) as executable:
        result = executable.run({"w": w, "u": v[None]} if squeezed else {"w": w, "v": v})["y"]
    scale = {"divided": 1 / 4, "scaled twice": 16}.get(left, 1)
    np.testing.assert_allclose(result, w.transpose(0, 2, 1) @ v * scale, rtol=1e-5, atol=1e-5)


_ATTENTION = """
<ir_version: 10, opset_import: ["" : 23]>
g (float[{0},7,12] q, float[{0},5,12] k, float[{0},5,12] v) => (float[{0},7,12] y)
<int64[4] four = {{ {0}, -1, 3, 4 }}, int64[3] less = {{ -1, 5, 4 }},
 int64[4] more = {{ {0}, 3, 4, 5 }}, int64[3] flat = {{ {0}, 7, 12 }}>
{{
    q0 = Reshape (q, four)
    k0 = Reshape (k, four)
    v0 = Reshape (v, four)
    q1 = Transpose <perm = [0, 2, 1, 3]> (q0)
    k1 = Transpose <perm = [0, 2, 1, 3]> (k0)
    v1 = Transpose <perm = [0, 2, 1, 3]> (v0)
    k2 = Reshape (k1, less)
    k3 = Transpose <perm = [0, 2, 1]> (k2)
    k4 = Reshape (k3, more)
    a = MatMul (q1, k4)
    p = Sigmoid (a)
    o = MatMul (p, v1)
    o1 = Transpose <perm = [0, 2, 1, 3]> (o)
    y = Reshape (o1, flat)
}}
"""


def test_the_left_operand_may_be_turned_with_its_heads_behind() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 23]>
    g (float[1,5,3,4] a, float[1,5,3,2] b) => (float[1,3,4,2] y) {
        c = Transpose <perm = [0, 2, 3, 1]> (a)
        d = Transpose <perm = [0, 2, 1, 3]> (b)
        y = MatMul (c, d)
    }
    """
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1, 5, 3, n)).astype(np.float32) for n in (4, 2))
    program = sambac.compile(onnx.parser.parse_model(text))
    assert sum(section.estimate.flops for section in program.sections) == 2 * 5 * 3 * 4 * 2
    with sambarun.load(program, threads=1) as executable:
        found = executable.run({"a": a, "b": b})["y"]
    np.testing.assert_allclose(found, np.einsum("bshd,bshe->bhde", a, b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batch", "transposes"), [(1, 1), (2, 4)])
def test_products_read_heads_where_they_are(batch: int, transposes: int) -> None:
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal((batch, length, 12)).astype(np.float32)
        for name, length in (("q", 7), ("k", 5), ("v", 5))
    }
    program = sambac.compile(onnx.parser.parse_model(_ATTENTION.format(batch)))
    operators = [
        operator.op_type for group in program.sections[0].groups for operator in group.operators
    ]
    assert operators.count("Transpose") == transposes
    q, k, v = (x.astype(np.float64).reshape(batch, -1, 3, 4) for x in feeds.values())
    shares = 1 / (1 + np.exp(-np.einsum("bshd,bthd->bhst", q, k)))
    exact = np.einsum("bhst,bthd->bshd", shares, v).reshape(batch, 7, 12)
    with sambarun.load(program, threads=1) as executable:
        np.testing.assert_allclose(executable.run(feeds)["y"], exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_what_is_transposed_before_a_scan_is_transposed_once(op: str) -> None:
    model = empty_model()
    b = Editor(model)
    w, x = (
        b.input(name, ir.DataType.FLOAT, shape) for name, shape in (("w", (3, 3)), ("x", (4, 3, 2)))
    )
    turned = b.op("Transpose", w, perm=[1, 0])

    def step(b: Editor, states: Values, at: Values) -> tuple[Values, Values]:
        made = b.op("Max", b.op(op, turned, states[0]), at[0])
        return [made], [b.op("Identity", made)]

    _, (y,) = scan(b, step, [b.op("Squeeze", b.op("Slice", x, [0], [1], [0]), [0])], [x])
    model.graph.outputs.append(b.named(y, "y"))
    PassContext().run(model, (*SIMPLIFY, *SELECT_TRAINING_KERNELS))
    (loop,) = (node for node in all_nodes(model.graph) if node.op_type == "Scan")
    product, *_ = loop.attributes["body"].as_graph()
    assert (product.op_type, product.attributes.get("transA")) == (op, None)
    assert "Transpose" in [node.op_type for node in model.graph]
