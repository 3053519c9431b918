"""Every operator has a cost family, and the rules count what they say."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnxruntime.capi.onnxruntime_pybind11_state as onnxruntime_state
import pytest

from sambac.graph.own_gradients import DOMAIN, INCOMING, OWN
from sambac.ops import FAMILIES, family_of, flops_of, is_anchor, is_random
from sambac.ops.family import POLYNOMIAL, qualified
from sambac.ops.registry import WITHOUT_FAMILY


def operators() -> list[tuple[str, str]]:
    """Return domain and name of all of ONNX's operators, every CPU kernel, and the compiler's."""
    schemas = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
    kernels = {
        (kernel.domain, kernel.op_name)
        for kernel in onnxruntime_state.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider"
    }
    return sorted(schemas | kernels | {(DOMAIN, INCOMING), (DOMAIN, OWN)})


def test_every_operator_has_a_family_or_a_reason():
    known = {qualified(*operator) for operator in operators()}
    assert len(known) > 250
    grouped = {name for family in FAMILIES for name in family.flops}
    assert known - grouped - set(WITHOUT_FAMILY) == set()
    assert grouped - known == set(), "families list operators that do not exist"
    assert grouped & set(WITHOUT_FAMILY) == set()


def value(name: str, shape: tuple[int | str, ...]) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))


def node(op: str, ins: list[tuple[int | str, ...]], out: tuple[int | str, ...], **attributes):
    domain, _, op_type = op.rpartition(".")
    made = ir.node(op_type, [], domain=domain, attributes=attributes)
    inputs = [value(f"i{index}", shape) for index, shape in enumerate(ins)]
    return ir.Node(
        domain, op_type, inputs, made.attributes.values(), outputs=[value("out", out)], name="n"
    )


@pytest.mark.parametrize(
    ("op", "ins", "out", "attributes", "flops"),
    [
        ("Add", [(4, 5), (5,)], (4, 5), {}, 20),
        ("Sum", [(5,), (5,), (5,)], (5,), {}, 10),
        ("Tanh", [(5,)], (5,), {}, 5 * POLYNOMIAL),
        ("Reshape", [(4, 5), (1,)], (20,), {}, 0),
        ("MatMul", [(7, 4, 5), (5, 6)], (7, 4, 6), {}, 2 * 7 * 4 * 6 * 5),
        ("Gemm", [(5, 4), (5, 6)], (4, 6), {"transA": 1}, 2 * 4 * 6 * 5),
        ("com.microsoft.FusedMatMul", [(4, 5), (6, 5)], (4, 6), {"transB": 1}, 2 * 4 * 6 * 5),
        ("com.microsoft.MatMulNBits", [(4, 64), (6, 2, 16)], (4, 6), {"K": 64}, 2 * 4 * 6 * 64),
        ("Einsum", [(2, 3), (3, 4)], (2, 4), {"equation": "ij, jk -> ik"}, 2 * 2 * 3 * 4),
        ("Conv", [(1, 8, 9, 9), (16, 4, 3, 3)], (1, 16, 7, 7), {}, 2 * 16 * 49 * 4 * 9),
        ("ConvTranspose", [(1, 8, 4, 4), (8, 6, 3, 3)], (1, 6, 6, 6), {}, 2 * 8 * 16 * 6 * 9),
        (
            "QLinearConv",
            [(1, 2, 4, 4), (), (), (5, 2, 3, 3)],
            (1, 5, 2, 2),
            {},
            2 * 5 * 4 * 2 * 9,
        ),
        ("MaxPool", [(1, 3, 4, 4)], (1, 3, 2, 2), {"kernel_shape": [2, 2]}, 12 * 4),
        ("GlobalAveragePool", [(1, 3, 4, 4)], (1, 3, 1, 1), {}, 48),
        ("ReduceSum", [(4, 5)], (4,), {}, 20),
        ("Softmax", [(4, 5)], (4, 5), {}, 20 * (POLYNOMIAL + 4)),
        ("LayerNormalization", [(4, 5), (5,)], (4, 5), {}, 160),
        ("Attention", [(2, 8, 16, 64), (2, 8, 32, 64), (2, 8, 32, 64)], (2, 8, 16, 64), {}, 2**21),
        ("LSTM", [(7, 2, 5), (1, 12, 5), (1, 12, 3)], (7, 1, 2, 3), {}, 2 * 14 * (60 + 36)),
        ("ScatterND", [(9,), (2, 1), (2,)], (9,), {"reduction": "add"}, 2),
        ("ScatterND", [(9,), (2, 1), (2,)], (9,), {}, 0),
        ("NonMaxSuppression", [(1, 10, 4), (1, 1, 10)], ("k", 3), {}, 1600),
        ("DFT", [(1, 16, 1)], (1, 16, 2), {}, 5 * 16 * 5),
        ("somewhere.Strange", [(3,)], (4,), {}, 4),
    ],
)
def test_flops(op, ins, out, attributes, flops):
    assert flops_of(node(op, ins, out, **attributes)) == flops


@pytest.mark.parametrize("op", ["Add", "MatMul", "Conv", "Softmax", "Attention", "LSTM", "TopK"])
def test_open_dimensions_count_as_one(op: str):
    shape, ones = ("n", "m", "k"), (1, 1, 1)
    modelled = flops_of(node(op, [shape, shape, shape], shape))
    assert modelled == flops_of(node(op, [ones, ones, ones], ones))


@pytest.mark.parametrize("op", ["Add", "MatMul", "Conv", "Softmax", "Attention", "LSTM", "TopK"])
def test_unknown_ranks_count_as_nothing(op: str):
    unranked = node(op, [(1,)] * 3, (1,))
    for found in (*unranked.inputs, *unranked.outputs):
        assert found is not None
        found.shape = None
    assert flops_of(unranked) == 0


def test_every_rule_copes_with_missing_inputs_and_unknown_shapes():
    for family in FAMILIES:
        for name in family.flops:
            if name == "Einsum":  # has no meaning without its equation
                continue
            domain, _, op_type = name.rpartition(".")
            bare = ir.Node(domain, op_type, [], outputs=[ir.Value(name="out")])
            assert flops_of(bare) == 0, name


def body(count: int) -> ir.Graph:
    made = node("Add", [(10,), (10,)], (10,))
    nodes = [
        ir.Node("", "Neg", [made.outputs[0]], outputs=[value(f"o{i}", (10,))]) for i in range(count)
    ]
    return ir.Graph([], [nodes[-1].outputs[0]], nodes=nodes, name="body")


def test_a_branch_costs_what_its_dearer_side_costs():
    choice = ir.Node(
        "",
        "If",
        [value("c", ())],
        [ir.AttrGraph("then_branch", body(2)), ir.AttrGraph("else_branch", body(5))],
        outputs=[value("y", (10,))],
    )
    assert flops_of(choice) == 50


def test_a_scan_costs_its_body_for_each_element():
    scan = ir.Node(
        "",
        "Scan",
        [value("state", (2,)), value("xs", (7, 10))],
        [ir.AttrGraph("body", body(3)), ir.AttrInt64("num_scan_inputs", 1)],
        outputs=[value("y", (10,))],
    )
    assert flops_of(scan) == 7 * 30


@pytest.mark.parametrize("trips", [None, 6])
def test_a_loop_costs_its_body_for_each_trip_that_is_known(trips: int | None):
    count = value("n", ())
    count.const_value = ir.tensor(trips) if trips is not None else None
    loop = ir.Node(
        "", "Loop", [count, None], [ir.AttrGraph("body", body(3))], outputs=[value("y", (10,))]
    )
    assert flops_of(loop) == (trips or 1) * 30


@pytest.mark.parametrize("most", [2**31 - 1, 2**63 - 1])
def test_a_count_that_stands_for_no_limit_is_none(most: int):
    count = value("n", ())
    count.const_value = ir.tensor(most)
    loop = ir.Node(
        "", "Loop", [count, None], [ir.AttrGraph("body", body(3))], outputs=[value("y", (10,))]
    )
    assert flops_of(loop) == 30


def test_families_answer_for_their_operators():
    assert is_anchor("", "Conv")
    assert is_anchor("com.microsoft", "FusedMatMul")
    assert not is_anchor("", "Relu")
    assert not is_anchor("nowhere", "Conv")
    family = family_of("", "Gelu")
    assert family is not None
    assert family.name == "elementwise"
    assert family_of("nowhere", "Gelu") is None


@pytest.mark.parametrize(
    ("op", "attributes", "random"),
    [
        ("RandomNormal", {}, True),
        ("Dropout", {}, True),
        ("BatchNormalization", {"training_mode": 1}, True),
        ("BatchNormalization", {}, False),
        ("Relu", {}, False),
    ],
)
def test_randomness(op: str, attributes, random: bool):
    assert is_random(node(op, [(3,)], (3,), **attributes)) is random
