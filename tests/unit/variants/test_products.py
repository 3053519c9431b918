"""Products give the same numbers in the formulation that is chosen for them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from near import assert_near

import sambac
import sambarun
from sambac.kernels.probe import TRANSPOSITIONS
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.select_kernels.choose_products import ChooseProducts
from sambac.variants.chunks import PROCESSOR
from sambac.variants.products import WriteProducts
from sambarun.sessions import opening
from sambarun.sessions.opening import Tuning, create_session
from sambarun.sessions.threads import Threads

# Terms, columns of the left operand and of the right one, and the operators that come of them.
SIZES = {
    "left": (300, 72, 136, ["Transpose", "Gemm"]),
    "equal": (70, 160, 160, ["Transpose", "Gemm"]),
    "right": (500, 200, 24, ["Transpose", "Gemm", "Transpose"]),
    "few terms": (20, 300, 200, ["Transpose", "Gemm"]),
    "narrow left": (2000, 24, 300, ["Gemm"]),
    "small": (20, 100, 100, ["Gemm"]),
}


def _model(terms: int, rows: int, columns: int, flags: str = "transA = 1, alpha = 0.5") -> ir.Model:
    parsed = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 23]> '
        f"product (float[{terms},{rows}] g, float[{terms},{columns}] x) => (float[a,b] y) "
        f"{{ y = Gemm <{flags}> (g, x) }}"
    )
    InferShapes()(parsed)
    return parsed


def _write(model: ir.Model) -> bool:
    """Choose by guess and write; tell whether that changed anything."""
    chosen = ChooseProducts()(model).modified
    assert WriteProducts()(model).modified == chosen
    return chosen


@pytest.mark.parametrize("name", SIZES)
def test_results_and_operators(name: str) -> None:
    terms, rows, columns, operators = SIZES[name]
    model = _model(terms, rows, columns)
    _write(model)
    assert [node.op_type for node in model.graph] == operators
    rng = np.random.default_rng(2)
    g, x = (rng.standard_normal((terms, n)).astype(np.float32) for n in (rows, columns))
    made = ir.serde.serialize_model(model).SerializeToString()
    (found,) = ort.InferenceSession(made).run(None, {"g": g, "x": x})
    assert_near(found, 0.5 * (g.T.astype(np.float64) @ x), size=terms**0.5, what=name)


def test_products_with_nothing_to_turn_are_kept() -> None:
    model = _model(200, 200, 200, "alpha = 2.0")
    assert not _write(model)


class _Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(200, 192), torch.nn.Linear(192, 72))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


def test_steps_are_those_of_pytorch_in_float64() -> None:
    torch.manual_seed(0)
    module, x = _Layers(), torch.randn(96, 200)
    program = sambac.compile(
        module,
        sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.5),)),
        inputs=(x,),
    )
    assert any(PROCESSOR in made.requires for made in program.programs)
    exact = copy.deepcopy(module).double()
    optimizer = torch.optim.SGD(exact.parameters(), lr=0.5)
    with sambarun.load(program, threads=1) as executable:
        for _ in range(3):
            executable.step({"x": x.numpy()})
            optimizer.zero_grad()
            exact(x.double()).backward()
            optimizer.step()
        states = executable.state()
    for name, parameter in exact.named_parameters():
        assert_near(states[name], parameter.detach().numpy(), size=1.0, what=name)


def test_sessions_of_steps_keep_what_is_turned_first(tmp_path: Path) -> None:
    terms, rows, columns, operators = SIZES["right"]
    model = _model(terms, rows, columns)
    _write(model)
    tuning = Tuning(Threads(1), moves=False, profiles=str(tmp_path))
    session = create_session(ir.serde.serialize_model(model).SerializeToString(), "", tuning)
    session.run(None, {put.name: np.ones(put.shape, np.float32) for put in session.get_inputs()})
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = [event["args"]["op_name"] for event in events if event["name"].endswith("kernel_time")]
    assert ran == operators


def test_products_inside_of_loops_are_written() -> None:
    """Of few rows with a weight from outside, as a recurrence has them."""
    text = """<ir_version: 10, opset_import: ["" : 23]>
main (float[3,16,256] xs, float[16,256] h, float[256,256] w) => (float[16,256] last)
{ last = Scan <num_scan_inputs = 1,
    body = step (float[16,256] before, float[16,256] x) => (float[16,256] after)
    { p = Gemm <transB = 1> (before, w, x)  after = Tanh (p) }> (h, xs) }"""
    model = ir.from_onnx_text(text)
    InferShapes()(model)
    whole = copy.deepcopy(ir.to_proto(model))
    assert _write(model)
    ran = [node.op_type for node in model.graph.all_nodes()]
    assert ran == ["Scan", "Gemm", "Transpose", "Add", "Tanh"]
    rng = np.random.default_rng(1)
    shapes = {"xs": (3, 16, 256), "h": (16, 256), "w": (256, 256)}
    feeds = {name: 0.1 * rng.standard_normal(s, dtype=np.float32) for name, s in shapes.items()}
    (expected,), (found,) = (
        ort.InferenceSession(each.SerializeToString()).run(None, feeds)
        for each in (whole, ir.to_proto(model))
    )
    assert_near(found, expected.astype(np.float64), size=16, what="last")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("float[16,256] x, float[256,256] w) => (y) { y = Gemm <beta = 0.5> (x, w, x)", "beta"),
        ("float[4,16,256] x, float[4,256,256] w) => (y) { y = MatMul (x, w)", "a batch"),
        ("float[256] x, float[256,256] w) => (y) { y = MatMul (x, w)", "a vector"),
        ("double[16,256] x, double[256,256] w) => (y) { y = Gemm <transB = 1> (x, w)", "float64"),
        ("float[N,256] x, float[256,256] w) => (y) { y = Gemm <transB = 1> (x, w)", "open"),
        ("float[16,256] x, float[0,256] w) => (y) { y = Gemm <transB = 1> (x, w)", "nothing"),
        ("float[9,256] x, float[256,256] w, float[N] c) => (y) { y = Gemm (x, w, c)", "open bias"),
        ("float[4,256] x, float[8,256] w) => (y) { y = Gemm <transB = 1> (x, w)", "small"),
    ],
)
def test_what_is_no_large_product_of_two_matrices_is_not_asked_about(text: str, why: str) -> None:
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 23]> main ({text} }}')
    InferShapes()(model)
    step = ChooseProducts()
    assert not step(model).modified, why
    assert not step.decisions.made, why


def test_what_is_added_may_have_any_shape() -> None:
    """A number, a row, a column or a matrix is added to a product whose result is transposed."""
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((16, 256), (256, 256)))
    for shape in ((1,), (256,), (1, 256), (16, 1), (1, 1), (16, 256)):
        words = ",".join(map(str, shape))
        model = ir.from_onnx_text(
            '<ir_version: 10, opset_import: ["" : 23]> '
            f"product (float[16,256] x, float[256,256] w, float[{words}] c) => (float[16,256] y) "
            "{ y = Gemm <transB = 1, alpha = 0.25> (x, w, c) }"
        )
        InferShapes()(model)
        assert _write(model)
        assert "Transpose" in [node.op_type for node in model.graph]
        c = rng.standard_normal(shape, dtype=np.float32)
        session = ort.InferenceSession(ir.to_proto(model).SerializeToString())
        (found,) = session.run(None, {"x": x, "w": w, "c": np.asarray(c, np.float32)})
        exact = 0.25 * (x.astype(np.float64) @ w.T) + c
        assert_near(found, exact, size=16, what=str(shape))


def test_what_is_measured_is_optimised_as_steps_are() -> None:
    assert TRANSPOSITIONS == opening._MOVES
