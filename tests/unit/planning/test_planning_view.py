"""The view of a model: operators, values, literals, weights and what is cloned."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from sambac.errors import CompileError
from sambac.passes.legalize.insert_casts import InsertCasts
from sambac.passes.simplify.eliminate_common_subexpressions import EliminateCommonSubexpressions
from sambac.planning.from_model import view_of
from sambac.planning.view import ValueRole

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'


def view(text: str, version: int = 21, *, states=(), clone_views: bool = False):
    """Return the view of a model in ONNX's text form, its nodes named after their outputs."""
    header = f'<ir_version: 10, opset_import: ["" : {version}, "com.microsoft" : 1]>'
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(header + text))
    for node in proto.graph.node:
        node.name = node.name or node.output[0]
    return view_of(ir.from_proto(proto), states=states, clone_views=clone_views)


def cloned(text: str) -> set[str]:
    return {op.name for op in view(text).ops.values() if op.cloned}


BIG = "float[400] w = {" + ", ".join(["1"] * 400) + "}"


def test_literals_are_part_of_operators_and_weights_are_values():
    found = view(
        f"""g (float[20,20] x) => (float[400] y) <int64[1] shape = {{400}}, {BIG}> {{
            flat = Reshape(x, shape)
            y = Add(flat, w)
        }}"""
    )
    assert found.ops["flat"].inputs == ("x",)
    assert found.ops["y"].inputs == ("flat", "w")
    assert set(found.values) == {"x", "flat", "w", "y"}
    assert found.values["w"].role is ValueRole.WEIGHT
    assert (found.inputs, found.outputs) == (("x",), ("y",))


def test_views_are_cloned_on_request_unless_their_size_is_open():
    text = f"""g (float[20,20] x, float[N] v) => (float[400] y, float[N,1] z)
        <int64[1] shape = {{400}}, int64[1] axis = {{1}}, {BIG}> {{
            flat = Reshape(x, shape)
            y = Add(flat, w)
            column = Unsqueeze(v, axis)
            z = Neg(column)
        }}"""
    assert not any(op.cloned for op in view(text).ops.values())
    requested = view(text, clone_views=True).ops.values()
    assert {op.name for op in requested if op.cloned} == {"flat"}


def test_sizes_follow_from_types():
    found = view(
        """g (float[3] a, int8[2,N] b, float c, float16[0,7] d) => (float[3] y) {
            y = Abs(a)
        }"""
    )
    sizes = {name: facts.nbytes for name, facts in found.values.items()}
    assert sizes == {"a": 12, "b": None, "c": 4, "d": 0, "y": 12}
    assert found.values["b"].shape == (2, "N")
    assert found.values["a"].type == "tensor(float)"
    assert found.values["a"].dtype == onnx.TensorProto.FLOAT


def test_inputs_are_listed_once_in_the_order_of_first_use():
    found = view("g (float[2] a, float[2] b) => (float[2] y) { y = Sum(b, a, b) }")
    assert found.ops["y"].inputs == ("b", "a")


def test_strings_and_sequences_have_no_size():
    found = view(
        """g (string[2] s, float[2] x) => (seq(float[2]) y, string[2] t) {
            t = Identity(s)
            y = SequenceConstruct(x)
        }"""
    )
    assert (found.values["s"].nbytes, found.values["y"].nbytes) == (None, None)
    assert (found.values["y"].type, found.values["y"].dtype) == ("seq(tensor(float))", 0)


def test_what_subgraphs_capture_counts_as_read():
    found = view(
        f"""g (bool c, float[400] x, float[400] z) => (float[400] y) <{BIG}> {{
            y = If(c) <
                then_branch = t () => (float[400] a) {{ u = Add(x, w)
                                                      a = Neg(u) }},
                else_branch = e () => (float[400] b) {{ b = Mul(z, x) }}
            >
        }}"""
    )
    assert found.ops["y"].inputs == ("c", "x", "w", "z")


def test_a_subgraphs_own_values_are_not_captured():
    found = view(
        """g (int64 n, bool c, float[2] x) => (float[2] y) {
            y = Loop(n, c, x) <body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t) {
                k2 = Identity(k)
                t = Add(s, s)
            }>
        }"""
    )
    assert found.ops["y"].inputs == ("n", "c", "x")


def test_an_output_may_be_an_input_or_a_constant():
    found = view(
        """g (float[2] x) => (float[2] x, float[2] k, int64[1] i, float[2] y)
            <float[2] k = {1, 2}, int64[1] i = {7}> { y = Abs(x) }"""
    )
    assert found.outputs == ("x", "k", "i", "y")
    assert found.values["x"].role is ValueRole.INPUT
    assert found.values["k"].role is ValueRole.WEIGHT
    assert found.values["i"].role is ValueRole.WEIGHT


def test_large_constants_and_what_follows_from_them_alone_are_cloned():
    names = cloned(
        """g (float[512,512] x) => (float[512,512] y) <int64[2] dims = {512, 512}> {
            k = ConstantOfShape(dims)
            n = Neg(k)
            y = Add(x, n)
        }"""
    )
    assert names == {"k", "n"}


def test_what_follows_from_weights_alone_is_cloned():
    names = cloned(
        f"""g (float[400] x) => (float[400] y) <{BIG}> {{
            n = Neg(w)
            y = Add(x, n)
        }}"""
    )
    assert names == {"n"}


def test_arithmetic_on_shapes_is_cloned():
    names = cloned(
        """g (float[N,4] x, float[M] z) => (float[A,B] y)
            <int64 zero = {0}, int64[1] first = {0}, int64[1] four = {4}> {
            s = Shape(x)
            n = Gather(s, zero)
            rows = Unsqueeze(n, first)
            both = Concat<axis = 0>(four, rows)
            y = Reshape(z, both)
        }"""
    )
    assert names == {"s", "n", "rows", "both"}


def test_shapes_that_become_data_are_not_cloned_further():
    names = cloned(
        """g (float[N,4] x) => (float[2] y) {
            s = Shape(x)
            f = Cast<to = 1>(s)
            y = Sqrt(f)
        }"""
    )
    assert names == {"s"}


def test_what_the_model_returns_is_not_cloned():
    names = cloned(
        """g (float[N] x) => (int64[1] s, float[512] k, float[512] n) <int64[1] d = {512}> {
            s = Shape(x)
            k = ConstantOfShape(d)
            n = Neg(k)
        }"""
    )
    assert names == set()


def test_random_operators_are_never_cloned():
    names = cloned(
        """g (float[512] x) => (float[512] y) {
            r = RandomNormal<shape = [512]>()
            n = Neg(r)
            y = Add(x, n)
        }"""
    )
    assert names == set()


def test_a_value_beyond_any_memory_is_refused():
    with pytest.raises(CompileError, match=r"'y' would have .* bytes, which is beyond any memory"):
        view(
            """g (float[268435456,1] a, float[1,268435456] b) => (float[268435456,268435456] y) {
                y = Add(a, b)
            }"""
        )


def test_what_is_done_while_reading_is_cloned():
    """Narrow numbers are widened, and weights turned over; rounding and other turns are work."""
    found = view(
        """g (float16[2,3] x, float16[3,4] s) => (float16[4,2] y) {
            wide = Cast<to=1>(x)
            weight = Cast<to=1>(s)
            turned = Transpose<perm=[1,0]>(weight)
            other = Transpose<perm=[1,0]>(wide)
            product = MatMul(turned, other)
            y = Cast<to=10>(product)
        }""",
        states={"s"},
    )
    assert {op.name for op in found.ops.values() if op.cloned} == {"wide", "weight", "turned"}
    assert found.reads["product"] == ("s", "other")
    assert found.behind("turned") == ("s",)


def declared(text: str) -> dict[str, int]:
    """Return the declared type of what each operator makes, once there are casts for the host."""
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEADER + text)))
    for node in model.graph:
        node.name = node.outputs[0].name
    for change in (InsertCasts(), EliminateCommonSubexpressions()):
        change.call(model)
    found = view_of(model)
    assert all(
        found.sizes[v.name] == v.nbytes // (2 if v.declared else 1) for v in found.values.values()
    )
    return {op.name: found.values[op.outputs[0]].declared for op in found.ops.values()}


def test_casts_that_kernels_need_are_of_the_module_that_needs_them():
    text = """g (bfloat16[2,8] x) => (bfloat16[2,8] y) {
        a = Softmax(x)
        y = Sin(a)
    }"""
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEADER + text)))
    for node in model.graph:
        node.name = f"/{node.outputs[0].name}/{node.op_type}"
    InsertCasts().call(model)
    modules = {op.name: op.module for op in view_of(model).ops.values()}
    assert len(modules) > 2
    assert all(modules.values()), modules


def test_what_only_the_host_widens_has_the_type_of_the_model():
    """From a cast of its own on the model has what it says."""
    found = declared(
        """g (bfloat16[2,8] x, bfloat16[8,8] w) => (bfloat16[2,8] y, float[2,8] z) {
            scores = MatMul(x, w)
            shares = Softmax(scores)
            y = MatMul(shares, w)
            wide = Cast<to=1>(scores)
            z = Softmax(wide)
        }"""
    )
    wanted = {"scores": 16, "shares": 16, "y": 16, "wide": 0, "z": 0}
    assert {name: found[name] for name in wanted} == wanted


def test_a_cast_that_the_model_asks_for_too_gives_what_it_says():
    found = declared(
        """g (bfloat16[2,8] x) => (bfloat16[2,8] y, float[2,8] z) {
            wide = Cast<to=1>(x)
            z = Softmax(wide)
            y = LogSoftmax(x)
        }"""
    )
    assert (found["y"], found["z"]) == (0, 0)


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "kept"),
    [(100, 3, 4, "b"), (2, 30, 40, "a"), (2, 100, 3, "y"), (5, 5, 5, "b")],
)
def test_a_product_keeps_the_smallest_of_its_matrices(rows, inner, columns, kept):
    given = f"float[{rows},{inner}] a, float[{inner},{columns}] b"
    found = view(f"g ({given}) => (float[{rows},{columns}] y) {{ y = MatMul(a, b) }}")
    assert found.held == {kept}


def test_products_in_a_batch_and_light_operators_keep_nothing():
    found = view(
        """g (float[9,2,3] a, float[9,3,4] b) => (float[9,2,4] y) {
            product = MatMul(a, b)
            y = Relu(product)
        }"""
    )
    assert found.held == frozenset()


def test_a_convolution_keeps_its_filters():
    found = view(
        """g (float[1,2,8,8] x, float[3,2,3,3] f) => (float[1,3,6,6] y) {
            y = Conv(x, f)
        }"""
    )
    assert found.held == {"f"}


@pytest.mark.parametrize(
    ("given", "result", "formula"),
    [
        ("uint8[1,2,8,8] x, uint8[3,2,3,3] w", "uint8[1,3,6,6] y",
         "QLinearConv(x, s, z, w, s, z, s, z)"),
        ("uint8[90,3] x, uint8[3,4] w", "uint8[90,4] y", "QLinearMatMul(x, s, z, w, s, z, s, z)"),
        ("uint8[90,3] x, uint8[3,4] w", "uint8[90,4] y",
         "com.microsoft.QGemm(x, s, z, w, s, z, c, s, z)"),
        ("float[90,32] x, uint8[4,1,32] w", "float[90,4] y",
         "com.microsoft.MatMulNBits<K=32, N=4, bits=8, block_size=32>(x, w, r)"),
        ("int8[90,3] x, int8[3,4] w", "int32[90,4] y", "MatMulInteger(x, w)"),
        ("uint8[1,2,8,8] x, uint8[3,2,3,3] w", "int32[1,3,6,6] y", "ConvInteger(x, w)"),
    ],
)  # fmt: skip
def test_quantised_products_keep_their_weights_not_a_scale(given, result, formula):
    others = "float s, uint8 z, int32[4] c, float[4] r"
    found = view(f"g ({given}, {others}) => ({result}) {{ y = {formula} }}")
    assert found.held == {"w"}
