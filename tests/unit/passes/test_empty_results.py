"""Operators whose results have no elements give way to constants, as onnxruntime fails for some."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import sambac
import sambarun
from sambac.passes.workarounds.empty_results import EmptyResults, OpenProducts

# What is written of x [0,4] and s [], and the shape of the result.
_EMPTY = {
    "y = Exp (x)": "0,4",
    "a, b = Split <axis = 0, num_outputs = 2> (x) y = Concat <axis = 0> (a, b)": "0,4",
    "a, y = Split <axis = 0, num_outputs = 2> (x)": "0,4",
    'y = Pad <mode = "wrap"> (x, p)': "0,6",
    "t = Transpose (x) y = MatMul (x, t)": "0,0",
    "y = Expand (s, q)": "0,2",
    "u = Unsqueeze (x, o) y = MatMul (u, m)": "0,1,2",
    "y = Gather (m, n)": "0,2",
}
_CONSTANTS = (
    "int64[4] p = {0,1,0,1}, int64[2] q = {0,2}, int64[1] o = {1}, int64[0] n = {}, "
    "float[4,2] m = {1,2,3,4,5,6,7,8}"
)


def _model(body: str, shape: str) -> ir.Model:
    header = '<ir_version: 10, opset_import: ["": 23]>'
    ports = f"(float[0,4] x, float s) => (float[{shape}] y, float z) <{_CONSTANTS}>"
    text = f"{header} g {ports} {{ {body} z = Exp (s) }}"
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    return ir.from_proto(model)


@pytest.mark.parametrize("body", _EMPTY)
def test_nothing_is_computed(body: str) -> None:
    model = _model(body, _EMPTY[body])
    EmptyResults()(model)
    assert {node.op_type for node in model.graph if node.outputs[0].name != "z"} == {"Expand"}
    assert [output.name for output in model.graph.outputs] == ["y", "z"]
    onnx.checker.check_model(ir.to_proto(model))
    assert not EmptyResults()(model).modified


@pytest.mark.parametrize("body", _EMPTY)
def test_its_shape_is_that_of_the_result(body: str) -> None:
    feeds = {"x": np.zeros((0, 4), np.float32), "s": np.ones((), np.float32)}
    with sambarun.load(sambac.compile(ir.to_proto(_model(body, _EMPTY[body])))) as executable:
        found = executable.run(feeds)["y"]
    assert found.shape == tuple(map(int, _EMPTY[body].split(",")))


# What is written of x, and shapes of x and the result, where L is open and 3 in the run.
_OPEN = {
    "attention": ("y = Attention (x, x, x)", "0,2,L,4", "0,2,L,4"),
    "attention of rows": (
        "y = Attention <q_num_heads = 2, kv_num_heads = 2> (x, x, x)", "0,L,4", "0,L,4",
    ),
    "no queries": ("y = Attention (x, x, x)", "L,2,0,4", "L,2,0,4"),
    "LSTM": ("y = LSTM <hidden_size = 2> (x, w, r)", "L,0,4", "L,1,0,2"),
    "product": ("t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (t, m)", "0,4,L", "0,L,2"),
}  # fmt: skip


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("name", _OPEN)
def test_open_sizes_are_those_of_the_operands(name: str, level: str) -> None:
    body, given, wanted = _OPEN[name]
    ports = f"(float[{given}] x) => (float[{wanted}] y)"
    weights = "float[1,8,4] w, float[1,8,2] r, float[4,2] m"
    text = f"g {ports.replace(') =>', f', {weights}) =>')} {{ {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {text}')
    feeds = {
        port.name: np.ones(
            [dim.dim_value or 3 * (dim.dim_param == "L") for dim in shape], np.float32
        )
        for port in model.graph.input
        if (shape := port.type.tensor_type.shape.dim)
    }
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        ports_read = {port.name for port in program.graphs[0].inputs}
        found = executable.run({name: feeds[name] for name in ports_read})["y"]
    assert found.shape == tuple(map(int, wanted.replace("L", "3").split(",")))


def test_what_has_elements_is_kept() -> None:
    model = _model("y = ReduceSum <keepdims = 1> (x)", "1,1")
    assert not EmptyResults()(model).modified


@pytest.mark.parametrize("opset", [6, 7, 8, 12])
def test_programs_of_old_opsets_have_no_operators_of_newer_ones(opset: int) -> None:
    text = "g (float[0,3,4] x, float[4,4] w) => (float[0,3,4] y) { y = MatMul(x, w) }"
    version = 3 if opset < 9 else 7
    model = onnx.parser.parse_model(f'<ir_version: {version}, opset_import: ["": {opset}]> {text}')
    feeds = {"x": np.zeros((0, 3, 4), np.float32), "w": np.ones((4, 4), np.float32)}
    with sambarun.load(sambac.compile(model)) as executable:
        assert executable.run(feeds)["y"].shape == (0, 3, 4)


_PRODUCTS = {
    "vector": ("n,k", "k", (3, 0), (0,)),
    "batch and vector": ("b,n,k", "k", (2, 3, 0), (0,)),
    "known to be none": ("b,3,0", "0", (2, 3, 0), (0,)),
    "first vector": ("k", "b,k,n", (0,), (2, 0, 4)),
    "two vectors": ("k", "k", (0,), (0,)),
    "batch of the second": ("n,k", "b,k,m", (3, 0), (2, 0, 4)),
    "something": ("k", "b,k,n", (5,), (2, 5, 4)),
    "one before a batch": ("1,n,k", "b,k,m", (1, 3, 0), (2, 0, 4)),
    "maybe one before a batch": ("b,c,n,k", "d,k,m", (2, 1, 3, 0), (5, 0, 4)),
    "no batch": ("k", "b,k,n", (5,), (0, 5, 4)),
    "no batch of the first": ("b,1,n,k", "d,k,m", (0, 1, 3, 4), (5, 4, 5)),
}


@pytest.mark.parametrize("opset", [9, 23])
@pytest.mark.parametrize("name", _PRODUCTS)
def test_products_of_open_sizes_are_written_whole(name: str, opset: int) -> None:
    """What onnxruntime leaves as it was is something else than 0 in most runs."""
    *dims, left, right = _PRODUCTS[name]
    header = f'<ir_version: {10 if opset > 9 else 4}, opset_import: ["": {opset}]>'
    text = f"{header} g (float[{dims[0]}] a, float[{dims[1]}] b) => (y) {{ y = MatMul (a, b) }}"
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    lowered = ir.from_proto(model)
    assert OpenProducts()(lowered).modified
    (product,) = (node for node in lowered.graph if node.op_type == "MatMul")
    shapes = [value.shape for value in product.inputs if value is not None]
    assert min(len(shape or ()) for shape in shapes) > 1
    a, b = np.ones(left, np.float32), np.ones(right, np.float32)
    with sambarun.load(sambac.compile(model)) as executable:
        np.testing.assert_array_equal(executable.run({"a": a, "b": b})["y"], a @ b)


@pytest.mark.parametrize("kind", ["bfloat16", "float8e4m3fn", "bool", "uint16"])
def test_nothing_of_every_type_runs(kind: str) -> None:
    text = f"g ({kind}[2,0] x) => ({kind}[0,2] y) {{ y = Transpose <perm = [1, 0]> (x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 23]> {text}')
    number = model.graph.input[0].type.tensor_type.elem_type
    nothing = np.zeros((2, 0), onnx.helper.tensor_dtype_to_np_dtype(number))
    with sambarun.load(sambac.compile(model)) as executable:
        assert executable.run({"x": nothing})["y"].shape == (0, 2)
