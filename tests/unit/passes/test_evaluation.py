"""What is computed at compile time has the same bytes on every host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import pef
import sambac
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.simplify import evaluation
from sambac.passes.simplify.fold_constants import FoldConstants

A = np.sin(np.arange(1, 49, dtype=np.float64) ** 2).astype(np.float32).reshape(6, 8)
EXACTLY = A.astype(np.longdouble)  # more bits than float64, where the host has them


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


# Operators that round, each with how they are written and what they give, of any precision.
ROUNDED = {
    "Cos": ("Cos (a)", np.cos),
    "CumProd": None,  # newer than the opset of the test
    "CumSum": ("CumSum (a, one)", lambda x: np.cumsum(x, 1)),
    "Einsum": ('Einsum <equation = "ij,kj->ik"> (a, a)', lambda x: x @ x.T),
    "Exp": ("Exp (a)", np.exp),
    "Gemm": ("Gemm <transB = 1, alpha = 0.5> (a, a)", lambda x: x @ x.T / 2),
    "Log": ("Log (positive)", lambda x: np.log(abs(x))),
    "LogSoftmax": ("LogSoftmax (a)", lambda x: np.log(softmax(x))),
    "MatMul": ("MatMul (a, turned)", lambda x: x @ x.T),
    "Pow": ("Pow (positive, a)", lambda x: abs(x) ** x),
    "Range": (
        "Range (start, limit, delta)",
        lambda _: np.arange(7) * np.longdouble(np.float32(0.1)),
    ),
    "Reciprocal": ("Reciprocal (a)", lambda x: 1 / x),
    "ReduceL1": ("ReduceL1 <axes = [1]> (a)", lambda x: abs(x).sum(1, keepdims=True)),
    "ReduceL2": ("ReduceL2 <axes = [1]> (a)", lambda x: np.sqrt((x**2).sum(1, keepdims=True))),
    "ReduceLogSum": (
        "ReduceLogSum <axes = [1]> (positive)",
        lambda x: np.log(abs(x).sum(1, keepdims=True)),
    ),
    "ReduceLogSumExp": (
        "ReduceLogSumExp <axes = [1]> (a)",
        lambda x: np.log(np.exp(x).sum(1, keepdims=True)),
    ),
    "ReduceMean": ("ReduceMean <axes = [1]> (a)", lambda x: x.mean(1, keepdims=True)),
    "ReduceProd": ("ReduceProd <axes = [1]> (a)", lambda x: x.prod(1, keepdims=True)),
    "ReduceSum": ("ReduceSum (a, axes)", lambda x: x.sum(1, keepdims=True)),
    "ReduceSumSquare": (
        "ReduceSumSquare <axes = [1]> (a)",
        lambda x: (x**2).sum(1, keepdims=True),
    ),
    "Sigmoid": ("Sigmoid (a)", lambda x: 1 / (1 + np.exp(-x))),
    "Sin": ("Sin (a)", np.sin),
    "Softmax": ("Softmax (a)", softmax),
    "Tanh": ("Tanh (a)", np.tanh),
}
FORMS = {name: form for name, form in ROUNDED.items() if form is not None}


def model(text: str, dtype: str = "float") -> ir.Model:
    """Return y = x + the constant that `text` computes, which is of a float type."""
    made = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 13]>
        g ({dtype}[1] x) => ({dtype}[M, N] y)
        <int64 one = {{1}}, int64[1] axes = {{1}},
         float start = {{0}}, float limit = {{0.65}}, float delta = {{0.1}}>
        {{ c = {text}  y = Add (x, c) }}
    """)
    kind = onnx.helper.tensor_dtype_to_np_dtype(made.graph.input[0].type.tensor_type.elem_type)
    for name, content in {"a": A, "turned": A.T, "positive": abs(A)}.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(content.astype(kind), name))
    read = ir.from_proto(made)
    InferShapes()(read)
    return read


def folded(text: str, dtype: str = "float") -> np.ndarray | None:
    """Return what is added to x after folding; None if it is still computed."""
    made = model(text, dtype)
    FoldConstants()(made)
    tensor = made.graph.node(-1).inputs[1].const_value
    return None if tensor is None else tensor.numpy()


@pytest.mark.parametrize("name", FORMS)
def test_results_are_rounded_once(name: str) -> None:
    text, formula = FORMS[name]
    found = folded(text)
    np.testing.assert_array_equal(found, formula(EXACTLY).astype(np.float32))


@pytest.mark.parametrize("name", ["Exp", "Softmax", "ReduceMean"])
def test_results_in_half_precision_are_rounded_once(name: str) -> None:
    text, formula = FORMS[name]
    exactly = formula(A.astype(np.float16).astype(np.longdouble))
    np.testing.assert_array_equal(
        folded(text, "float16"), exactly.astype(np.float32).astype(np.float16)
    )


def test_every_rounding_operator_is_tried() -> None:
    assert set(ROUNDED) == evaluation._ROUNDING
    assert not evaluation._ROUNDING & evaluation._EXACT


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("Erf (a)", "float"),
        ("Tan (a)", "float"),
        ("Softplus (a)", "float"),
        ("Elu (a)", "float"),
        ("HardSigmoid (a)", "float"),
        ("Mean (a, positive)", "float"),
        ("Softmax (a)", "double"),
        ("MatMul (a, turned)", "double"),
    ],
)
def test_what_only_some_hosts_would_get_is_left_to_them(text: str, dtype: str) -> None:
    assert folded(text, dtype) is None


@pytest.mark.parametrize("text", ["Sqrt (positive)", "Div (a, positive)", "Transpose (turned)"])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_what_is_exact_is_computed_in_its_own_type(text: str, dtype: str) -> None:
    assert folded(text, dtype) is not None


def test_a_number_stays_without_axes() -> None:
    found = folded("Transpose (delta)")
    assert found is not None
    assert found.shape == ()


def test_transposed_weights_need_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def without(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(evaluation, "open_session", without)
    for text, axes in {"Transpose": (2, 1, 0), "Transpose <perm = [1, 2, 0]>": (1, 2, 0)}.items():
        made = onnx.parser.parse_model(f"""
            <ir_version: 8, opset_import: ["" : 13]>
            g (float[1] x) => (float[A, B, C] y) {{ c = {text} (cube)  y = Add (x, c) }}
        """)
        made.graph.initializer.append(onnx.numpy_helper.from_array(cube, "cube"))
        read = ir.from_proto(made)
        InferShapes()(read)
        FoldConstants()(read)
        tensor = read.graph.node(-1).inputs[1].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), cube.transpose(axes))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.bool_])
@pytest.mark.parametrize("shape", [(1, 1), (33, 50), (64, 16), (130, 7), (3, 200)])
def test_matrices_are_transposed_by_columns(dtype: type, shape: tuple[int, int]) -> None:
    matrix = np.arange(shape[0] * shape[1]).reshape(shape).astype(dtype)
    found = evaluation._in_order(matrix.T)
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, matrix.T)


def test_what_reads_transposed_weights_is_computed() -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[1] x) => (float[M, N] y, float[N, M] z) {
            t = Transpose (turned)  c = Add (positive, t)  u = Transpose (c)
            y = Add (x, c)  z = Add (x, u)
        }
    """)
    for name, content in {"turned": A.T, "positive": abs(A)}.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    read = ir.from_proto(made)
    InferShapes()(read)
    FoldConstants()(read)
    tensors = [node.inputs[1].const_value for node in read.graph]
    assert [node.op_type for node in read.graph] == ["Add", "Add"]
    for tensor, wanted in zip(tensors, (abs(A) + A, (abs(A) + A).T), strict=True):
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), wanted)


def test_small_sigmoids_are_not_nothing() -> None:
    made = ir.from_onnx_text("""
        <ir_version: 8, opset_import: ["" : 13]>
        g (float[5] x) => (float[5] y)
        <float[5] w = {-80, -50, -20, 1, 800}>
        { a = Sigmoid (w)  y = Add (x, a) }
    """)
    InferShapes()(made)
    FoldConstants()(made)
    (add,) = made.graph
    assert add.inputs[1] is not None
    tensor = add.inputs[1].const_value
    assert tensor is not None
    exactly = 1 / (1 + np.exp(-np.array([-80, -50, -20, 1, 800], np.longdouble)))
    np.testing.assert_allclose(tensor.numpy(), exactly.astype(np.float32), rtol=1e-7)


def test_constants_of_a_file_are_those_of_every_host(tmp_path: Path) -> None:
    path = tmp_path / "model.pef"
    made = model("Softmax (a)")
    sambac.compile(made).save(path)
    with pef.open(path) as file:
        contents = [bytes(file.bytes(s.data)) for s in file.program.symbols if s.data is not None]
    assert contents == [softmax(EXACTLY).astype(np.float32).tobytes()]


@pytest.mark.parametrize("operator", ["Div", "Mod"])
@pytest.mark.parametrize("divisor", [0, -1])
def test_a_division_that_would_end_the_process_stays(operator: str, divisor: int) -> None:
    made = ir.from_onnx_text(f"""
        <ir_version: 8, opset_import: ["" : 13]>
        g (int32[1] x) => (int32[1] y)
        <int32 least = {{-2147483648}}, int32 divisor = {{{divisor}}}>
        {{ a = {operator} (least, divisor)  y = Add (x, a) }}
    """)
    InferShapes()(made)
    FoldConstants()(made)
    assert [node.op_type for node in made.graph] == [operator, "Add"]
