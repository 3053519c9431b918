"""Rounding to bfloat16 gives what rounding the operands of every operator by hand gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import random_model

from sambac.graph.nodes import has_subgraphs
from sambac.number_rules import NumberRule
from sambac.options import CompileOptions
from sambac.passes.device_numbers.precision import rounding
from sambac.passes.device_numbers.wanted_numbers import selects
from sambac.passes.legalize.check_legal import check_legal
from sambac.passes.pipelines import LEGALIZE, SELECT_TRAINING_KERNELS, SIMPLIFY

MODELS = st.tuples(st.integers(0, 2**32), st.integers(1, 25))
PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "FusedMatMul")
Arrays = dict[str, np.ndarray]


def rounded(array: np.ndarray) -> np.ndarray:
    """Return float32 numbers as torch rounds them to bfloat16."""
    return torch.from_numpy(np.array(array)).bfloat16().float().numpy()


def legal(model: onnx.ModelProto) -> ir.Model:
    assume(next(item.version for item in model.opset_import if not item.domain) >= 13)
    made = ir.from_proto(model)
    for step in LEGALIZE:
        step(made)
    return made


def run(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    wanted = {value.name: feeds[value.name] for value in session.get_inputs()}
    return dict(zip(names, session.run(names, wanted), strict=True))


def inputs(model: ir.Model) -> Arrays:
    rng = np.random.default_rng(0)
    return {
        value.name: rng.standard_normal(value.shape.numpy(), dtype=np.float32)
        for value in model.graph.inputs
    }


def by_hand(model: ir.Model, everything: bool) -> Arrays:
    """Run `model` operator by operator, rounding what each reads and what the model gives out."""
    proto = ir.to_proto(model)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    values, fixed = {**inputs(model), **stored}, set(stored)
    types = {value.name: value.type for value in (*proto.graph.value_info, *proto.graph.output)}
    for node in proto.graph.node:
        read = {name: values[name] for name in node.input if name}
        if node.op_type in ("Shape", "Size") or set(read) <= fixed:
            fixed.update(node.output)
        else:
            several = node.op_type in PRODUCTS
            for index, name in enumerate(node.input):
                number = name in fixed and read[name].size == 1
                data = not number and (index == 0 or node.op_type != "Resize")
                chosen = (several and index < 2) or (everything and data)
                if name and chosen and read[name].dtype == np.float32:
                    read[name] = rounded(read[name])
        values.update(_alone(node, read, types, proto))
    made = [value.name for value in proto.graph.output]
    return {
        name: rounded(values[name])
        if everything and name not in fixed and values[name].dtype == np.float32
        else values[name]
        for name in made
    }


def _alone(
    node: onnx.NodeProto, read: Arrays, types: dict[str, onnx.TypeProto], model: onnx.ModelProto
) -> Arrays:
    graph = onnx.GraphProto(name="alone", node=[node])
    for name, array in read.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    graph.output.extend(onnx.ValueInfoProto(name=n, type=types[n]) for n in node.output if n)
    alone = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
    alone.opset_import.extend(model.opset_import)
    return run(alone, read)


@pytest.mark.parametrize("everything", [False, True])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(MODELS)
def test_the_numbers_are_those_of_rounding_by_hand(
    everything: bool, drawn: tuple[int, int]
) -> None:
    plain = legal(random_model(*drawn))
    assume(not any(has_subgraphs(node) for node in plain.graph))
    expected = by_hand(plain, everything)
    model = legal(random_model(*drawn))
    (step,) = rounding(CompileOptions(precision="bfloat16" if everything else "mixed"))
    step(model)
    assert check_legal(model) == []
    found = run(ir.to_proto(model), inputs(model))
    assert list(found) == list(expected)
    for name, array in expected.items():
        if array.dtype.kind == "f":
            # Sums in another order may be rounded to the neighbour: two digits of bfloat16.
            digits = 2.0**-6 * np.nanmax(np.abs(array), initial=0, where=np.isfinite(array))
            np.testing.assert_allclose(found[name], array, 2.0**-6, digits, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(MODELS)
def test_no_pass_takes_a_rounding_away(drawn: tuple[int, int]) -> None:
    model = legal(random_model(*drawn))
    (step,) = rounding(CompileOptions(precision="mixed"))
    step(model)
    products = {  # a factor of ones and zeros makes a sum of a product
        node.name
        for node in model.graph
        if node.op_type in PRODUCTS and not any(map(selects, node.inputs[:2]))
    }
    for step in (*SIMPLIFY, *SELECT_TRAINING_KERNELS):
        step(model)
    for node in model.graph:
        if node.name in products and node.op_type in PRODUCTS:
            for value in node.inputs[:2]:
                assert _is_rounded(value), (node.op_type, value.name)


RULES = {
    "all passes": (NumberRule(fidelity="HiFi4"),),
    "short sums": (NumberRule(fidelity="HiFi3", accumulate="Float16"),),
    "blocks": (NumberRule(operands="Bfp8_b", output="Bfp8"),),
    "all": (
        NumberRule(
            operands="Bfp8",
            output="Float16",
            fidelity="HiFi3",
            accumulate="Float16_b",
            rounding="packer",
        ),
    ),
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(MODELS)
def test_any_model_takes_rules(name: str, drawn: tuple[int, int]) -> None:
    """It stays legal, and later passes change none of its numbers by more than a digit."""
    model = legal(random_model(*drawn))
    feeds = inputs(model)
    exact = run(ir.to_proto(model), feeds)
    for step in rounding(CompileOptions(number_rules=RULES[name])):
        step(model)
    assert check_legal(model) == []
    found = run(ir.to_proto(model), feeds)
    for step in (*SIMPLIFY, *SELECT_TRAINING_KERNELS):
        step(model)
    again = run(ir.to_proto(model), feeds)
    for key, array in exact.items():
        if array.dtype != np.float32:
            np.testing.assert_array_equal(again[key], found[key])
            continue
        finite = np.isfinite(array) & np.isfinite(found[key])
        largest = np.abs(array[finite]).max(initial=0)
        np.testing.assert_allclose(again[key][finite], found[key][finite], 0, 0.03 * largest)
        if name == "all passes":
            np.testing.assert_allclose(found[key][finite], array[finite], 0, 0.05 * largest)


_MOVERS = {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Gather", "Slice", "Expand"}


def _is_rounded(value: ir.Value) -> bool:
    """Follow `value` back, through what only moves, to a cast from bfloat16 or a constant."""
    while (maker := value.producer()) is not None:
        if maker.op_type == "Cast":
            return maker.inputs[0].dtype == ir.DataType.BFLOAT16
        if maker.op_type not in _MOVERS:
            return False
        value = maker.inputs[0]
    return value.is_initializer()


def test_onnxruntime_casts_as_torch_does() -> None:
    """Ties, denormals, infinities, NaN, and what rounds up to infinity."""
    patterns = [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x7F7FFFFF, 0x7F7F7FFF, 1]
    patterns += [0x7FFF, 0x8000, 0x8001, 0x17FFF, 0x18000, 0x80000000, 0x3F808000, 0x3F818000]
    random = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint64)
    numbers = np.array([*patterns, *random], np.uint32).view(np.float32)
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 23]> g (float[N] x) => (float[N] y) '
        "{ b = Cast <to = 16> (x) y = Cast <to = 1> (b) }"
    )
    (found,) = run(ir.to_proto(model), {"x": numbers}).values()
    expected = rounded(numbers)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(found[there].view(np.uint32), expected[there].view(np.uint32))
