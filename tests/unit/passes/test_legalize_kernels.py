"""What onnxruntime can run, and what happens to what it cannot."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from pef import dtypes
from sambac.errors import CompileError
from sambac.frontend.versions import adopt_versions
from sambac.kernels.probe import RefusedError, open_session
from sambac.kernels.registry import KernelCall, output_types, why_no_kernel
from sambac.kernels.widening import widening
from sambac.passes.legalize.check_kernels import CheckKernels
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.legalize.lower_opset import LowerOpset
from sambac.passes.pipelines import LEGALIZE

Legalized = Callable[[str], ir.Model]


def unary(op_type: str, opset: int, type_: str) -> KernelCall:
    return KernelCall("", op_type, opset, (type_,), (type_,))


@pytest.mark.parametrize("op_type", ["Relu", "Softmax", "Abs", "Mish", "Round", "Identity"])
@pytest.mark.parametrize("opset", [13, 14, 18, 22])
@pytest.mark.parametrize("dtype", [1, 3, 10, 11, 13, 16])
def test_the_registry_agrees_with_onnxruntime(op_type: str, opset: int, dtype: int) -> None:
    """A single-node model runs exactly where a kernel is found.

    Except that onnxruntime casts float16 by itself, and expands function bodies.
    """
    info = [helper.make_tensor_value_info(name, dtype, [2, 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "g", info[:1], info[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    try:
        open_session(proto.SerializeToString())
        runs = True
    except RefusedError:
        runs = False
    found = why_no_kernel(unary(op_type, opset, dtypes.spelling(dtype))) is None
    assert runs or not found
    if dtype != TensorProto.FLOAT16 and op_type != "Mish":
        assert found == runs


def test_an_open_ended_kernel_serves_only_the_version_it_starts_with() -> None:
    assert why_no_kernel(unary("Det", 21, "tensor(float)")) is None
    rois = ("tensor(float)", "tensor(float)", "tensor(int64)")
    assert why_no_kernel(KernelCall("", "RoiAlign", 21, rois, rois[:1])) is None
    assert why_no_kernel(KernelCall("", "RoiAlign", 22, rois, rois[:1])) is not None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (unary("Rellu", 17, "tensor(float)"), "did you mean 'Relu'?"),
        (unary("Gelu", 17, "tensor(float)"), "only since opset 20"),
        (KernelCall("my.ops", "F", 1, (), ()), "knows no domain my.ops"),
        (KernelCall("com.microsft", "Gelu", 1, (), ()), "did you mean 'com.microsoft'?"),
        (KernelCall("com.microsoft", "Softmax", 1, (), ()), "did you mean the one of ai.onnx?"),
        (
            KernelCall("", "Add", 17, ("tensor(float)", "tensor(int8)"), ()),
            "have to be of one type",
        ),
        (unary("Add", 17, "tensor(float)"), "needs 2 inputs and has 1"),
        (unary("Relu", 17, "tensor(string)"), "does not allow these types"),
        (unary("Softmax", 17, "tensor(bfloat16)"), "no CPU kernel for these types"),
    ],
)
def test_reasons(call: KernelCall, says: str) -> None:
    reason = why_no_kernel(call)
    assert reason is not None
    assert says in reason


@pytest.mark.parametrize(
    ("type_", "wider"),
    [
        ("tensor(float16)", "tensor(float)"),
        ("tensor(bfloat16)", "tensor(float)"),
        ("tensor(int8)", None),
    ],
)
def test_softmax_runs_on_a_wider_float(type_: str, wider: str | None) -> None:
    found = widening(unary("Softmax", 17, type_))
    assert (found.call.inputs[0] if found else None) == wider


def test_integers_become_wider_integers() -> None:
    call = KernelCall("", "ReduceSum", 17, ("tensor(int8)", "tensor(int64)"), ("tensor(int8)",))
    # ReduceSum allows no int16, and the smallest type with a kernel wins.
    assert widening(call) is None or widening(call).call.inputs[0] == "tensor(int32)"  # type: ignore[union-attr]
    power = KernelCall("", "Mod", 17, ("tensor(int8)",) * 2, ("tensor(int8)",))
    assert why_no_kernel(power) is None


def test_booleans_are_chosen_as_numbers_and_do_not_count() -> None:
    boolean = "tensor(bool)"
    found = widening(KernelCall("", "Where", 17, (boolean,) * 3, (boolean,)))
    assert found is not None
    assert found.call.inputs == (boolean, "tensor(uint8)", "tensor(uint8)")
    assert widening(KernelCall("", "Pow", 17, (boolean,) * 2, (boolean,))) is None
    assert widening(KernelCall("", "Add", 17, (boolean,) * 2, (boolean,))) is None


def test_conversions_and_saturating_integers_are_not_widened() -> None:
    assert widening(KernelCall("", "Cast", 17, ("tensor(float4e2m1)",), ("tensor(float)",))) is None
    scale = "tensor(float16)"
    quantize = KernelCall(
        "", "QuantizeLinear", 19, (scale, scale, "tensor(int8)"), ("tensor(int8)",)
    )
    wide = widening(quantize)
    assert wide is None or wide.call.outputs == ("tensor(int8)",)


def test_output_types_follow_the_schema() -> None:
    fused = KernelCall("com.microsoft", "FusedMatMul", 1, ("tensor(float)",) * 2, ("",))
    assert output_types(fused) == ("tensor(float)",)
    assert output_types(KernelCall("", "Shape", 17, ("tensor(int8)",), ("",))) == ("tensor(int64)",)
    assert output_types(KernelCall("", "Rellu", 17, ("tensor(int8)",), ("",))) == ("",)


def test_everything_without_a_kernel_is_in_one_message(legalized: Legalized) -> None:
    with pytest.raises(CompileError) as caught:
        legalized(
            """<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]>
            g (float[2] x, string[2] s) => (a, b, c) {
              a = Rellu (x)
              t = Rellu (x)
              b = my.ops.Frobnicate (x)
              c = Relu (s)
            }"""
        )
    message = str(caught.value)
    assert message.startswith("4 operators of the model have no kernel")
    assert "(did you mean 'Relu'?); nodes 'Rellu', 'Rellu_1'" in message
    assert "my.ops::Frobnicate (opset 1) on tensor(float)" in message
    assert "Relu (opset 17) on tensor(string)" in message


def test_check_kernels_changes_nothing(legalized: Legalized) -> None:
    model = legalized('<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (y) {y=Relu(x)}')
    assert not CheckKernels()(model).modified


def test_lowering_the_opset_finds_kernels(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 10, opset_import: ["" : 22]>
        g (float[1,3,8,8] x, float[2,4] r, int64[2] i) => (y) {
          a = Relu (x)
          y = RoiAlign (a, r, i)
        }"""
    )
    assert model.opset_imports[""] == 21
    assert [node.op_type for node in model.graph] == ["Relu", "RoiAlign"]


def test_lowering_the_opset_must_not_change_another_node() -> None:
    """GroupNormalization reads its scale per channel since opset 21, per group before."""
    text = """<ir_version: 10, opset_import: ["" : 22]>
        g (float[1,4,8,8] x, float[4] s, float[2,4] r, int64[2] i) => (y) {
          a = GroupNormalization <num_groups: int = 2> (x, s, s)
          y = RoiAlign (a, r, i)
        }"""
    model = ir.from_onnx_text(text)
    InferShapes()(model)
    LowerOpset()(model)
    assert model.opset_imports[""] >= 21


_NORMALISED = "(float[2,4,4] x, float[4] s) => (y) { a = RMSNormalization (x, s)"
_LOWERED = {
    "RandomUniformLike": (23, f"{_NORMALISED} y = RandomUniformLike (a) }}"),
    "RandomNormalLike": (23, f"{_NORMALISED} y = RandomNormalLike (a) }}"),
    "RandomNormal": (23, f"{_NORMALISED} r = RandomNormal <shape = [4]> () y = Add (a, r) }}"),
    "RandomUniform": (23, f"{_NORMALISED} r = RandomUniform <shape = [4]> () y = Add (a, r) }}"),
    "Bernoulli": (23, f"{_NORMALISED} y = Bernoulli (a) }}"),
    "Bernoulli alone": (22, "(float[2] x, float[4] s) => (y) { y = Bernoulli (x) }"),
    "GlobalLpPool": (24, f"{_NORMALISED} y = GlobalLpPool (a) }}"),
    "Attention": (
        24,
        """(float[2,2,3,4] x, float[2,3,2] s) => (y) {
             r = RotaryEmbedding (x, s, s) a = Attention (r, r, r) y = RandomNormalLike (a) }""",
    ),
    "16 bits": (
        24,
        """(float16[2,4] x, float[4] s) => (y) {
             a = Swish (x) y = RandomUniformLike (a) }""",
    ),
    "16 bits of nothing": (
        23,
        """(float[4] x, float[4] s) => (y) {
             r = RandomUniform <shape = [4], dtype = 10> () y = Cast <to = 1> (r) }""",
    ),
    "a body of bodies": (
        28,
        """(float[2,3] x, float[3,4] s, int64[3] i) => (y, z) {
             y = SwiGLU (x, x) b = Unsqueeze (y, two) z = RoiAlign (b, s, i) }""",
    ),
    "a branch": (
        23,
        """(float[2,4] x, float[4] s, bool b) => (y) {
             y = If (b) <
               then_branch = t () => (u) { a = RMSNormalization (x, s) u = RandomUniformLike (a) },
               else_branch = e () => (v) { v = Identity (x) }
             > }""",
    ),
}


@pytest.mark.parametrize("name", _LOWERED)
def test_what_the_lower_opset_lacks_gives_way_to_its_body(legalized: Legalized, name: str) -> None:
    opset, rest = _LOWERED[name]
    constants = "<int64[2] two = {2, 3}> " if "two" in rest else ""
    text = f'<ir_version: 10, opset_import: ["": {opset}]> g {rest}'
    model = legalized(text.replace("(y, z) {", f"(y, z) {constants}{{"))
    assert model.opset_imports[""] == 21
    made = {node.op_type for node in model.graph.all_nodes()}
    assert not made & {"RMSNormalization", "Attention", "RotaryEmbedding", "Swish", "Bernoulli"}
    open_session(ir.to_proto(model).SerializeToString())


def test_what_has_no_body_keeps_its_opset(legalized: Legalized) -> None:
    text = """<ir_version: 10, opset_import: ["": 24]>
        g (float[2,4,4] x, int64[2] i) => (y, z) { y = RandomUniformLike (x)
          z = TensorScatter (x, x, i) }"""
    with pytest.raises(CompileError, match="no CPU kernel for this operator since opset 22; node"):
        legalized(text)


def test_what_has_a_gradient_rule_keeps_its_opset_until_it_is_differentiated() -> None:
    text = f'<ir_version: 10, opset_import: ["": 23]> g {_NORMALISED} y = Bernoulli (a) }}'
    model = ir.from_onnx_text(text)
    InferShapes()(model)
    assert not LowerOpset(keep_differentiable=True)(model).modified
    assert LowerOpset()(model).modified


def test_operators_newer_than_onnxruntime_are_expanded(legalized: Legalized) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 28]>
        g (float[2,4] x, float[2,4] z) => (y) { y = SwiGLU (x, z) }"""
    )
    model = ir.from_proto(proto)
    adopt_versions(model, "g")
    for step in LEGALIZE:
        step(model)
    assert "SwiGLU" not in [node.op_type for node in model.graph]
    open_session(ir.to_proto(model).SerializeToString())


@pytest.mark.parametrize("type_", ["float16", "bfloat16"])
@pytest.mark.parametrize(("reduction", "wide"), [("add", True), ("max", True), ("none", False)])
@pytest.mark.parametrize(("op_type", "places"), [("ScatterElements", "2"), ("ScatterND", "2,1")])
def test_scatters_reduce_numbers_of_32_bits(
    legalized: Legalized, op_type: str, places: str, type_: str, reduction: str, wide: bool
) -> None:
    """The kernels are registered for all types, and fail when they are to reduce narrow ones."""
    model = legalized(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({type_}[4] x, int64[{places}] i, {type_}[2] u) => (y) {{
          y = {op_type} <reduction: string = "{reduction}"> (x, i, u)
        }}"""
    )
    (scatter,) = (node for node in model.graph if node.op_type == op_type)
    assert (scatter.inputs[0].dtype == ir.DataType.FLOAT) == wide
    assert model.graph.outputs[0].dtype == ir.DataType[type_.upper()]


_NOT_COMPUTED = {
    "LSTM": ("y = LSTM <hidden_size = 1> (x, w, w)", "double", "[1,1,1]", "[1,4,1]"),
    "GRU": ("y = GRU <hidden_size = 1> (x, w, w)", "double", "[1,1,1]", "[1,3,1]"),
    "Mod": ("y = Mod (x, w)", "float", "[2]", "[2]"),
    **{
        f"Resize of {kind}": ('y = Resize <mode = "cubic"> (x, , s)', kind, "[1,1,4,4]", "[2]")
        for kind in ("uint8", "int8", "int32")
    },
}


@pytest.mark.parametrize("name", _NOT_COMPUTED)
def test_kernels_that_are_listed_for_more_types_than_they_compute(
    legalized: Legalized, name: str
) -> None:
    """onnxruntime takes them, and each run fails."""
    body, kind, x, w = _NOT_COMPUTED[name]
    ports = f"({kind}{x} x, {kind}{w} w, float[4] s) => ({kind}[n] y)"
    text = f'<ir_version: 10, opset_import: ["": 22]> g {ports} {{ {body} }}'
    if "Resize" in name:
        text = text.replace("[n] y", "[1,1,n,m] y")
    text = text.replace("double[n] y", "double[a,b,c,d] y")
    with pytest.raises(CompileError, match="onnxruntime's CPU kernel has no"):
        legalized(text)


@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_extrema_of_truths_are_those_of_numbers(
    legalized: Legalized, op_type: str, reduction: str
) -> None:
    index = "int64[2]" if op_type == "ScatterElements" else "int64[2,1]"
    body = f'y = {op_type} <reduction = "{reduction}"> (x, i, u)'
    ports = f"(bool[4] x, {index} i, bool[2] u) => (bool[4] y)"
    model = legalized(f'<ir_version: 10, opset_import: ["": 22]> g {ports} {{ {body} }}')
    scatter = next(node for node in model.graph if node.op_type == op_type)
    assert scatter.inputs[0] is not None
    assert scatter.inputs[0].dtype == ir.DataType.UINT8
    open_session(ir.to_proto(model).SerializeToString())
