"""Normalisations of groups with what their gradients read, beside PyTorch in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from near import assert_near

from sambac.autodiff import differentiate
from sambac.passes.differentiation.keep_statistics import KeepStatistics, LowerKeptStatistics
from sambac.passes.legalize.infer_shapes import InferShapes

GROUPS = 3
SHAPE = (2, 6, 4, 6)
SUM = "y = Add (scaled, bias)"
PRODUCT = "scaled = Mul (normal, scale)"
BACK = "normal = Reshape (rows, whole)"
MAP = "y = BatchNormalization <epsilon = 0.0> (normal, scale, bias, zeros, ones)"
TWICE = "z = Add (scaled, bias) y = Add (z, normal)"
OFF = "y = BatchNormalization (normal, scale, bias, ones, ones)"
TEXT = """
<ir_version: 10, opset_import: ["" : 23]>
normalise (float[2, 6, 4, 6] x, float[{sizes}] scale, float[{sizes}] bias)
    => (float[2, 6, 4, 6] y)
<int64[3] apart = {{0, 3, -1}}, int64[4] whole = {{2, 6, 4, 6}},
 float[3] one = {{1.0, 1.0, {one}}}, float[3] none = {{0.0, 0.0, 0.0}},
 float[6] zeros = {{0.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
 float[6] ones = {{1.0, 1.0, 1.0, 1.0, 1.0, 1.0}}>
{{
  grouped = Reshape (x, apart)
  rows = InstanceNormalization <epsilon = 0.001> (grouped, one, none)
  {tail}
}}
"""
TAILS = {
    "sum": ("6, 1, 1", f"{BACK} {PRODUCT} {SUM}"),
    "sum, turned": ("1, 6, 1, 1", f"{BACK} scaled = Mul (scale, normal) y = Add (bias, scaled)"),
    "map": ("6", f"{BACK} {MAP}"),
}  # fmt: skip
OTHERS = {
    "along the last axis": ("6", f"{BACK} {PRODUCT} {SUM}", 1),
    "read elsewhere": ("6, 1, 1", f"{BACK} {PRODUCT} {TWICE}", 1),
    "scaled before": ("6, 1, 1", f"{BACK} {PRODUCT} {SUM}", 2),
    "by other numbers": ("6", f"{BACK} {OFF}", 1),
}  # fmt: skip


def model(sizes: str, tail: str, one: float = 1.0) -> ir.Model:
    text = TEXT.format(sizes=sizes, tail=tail, one=one)
    made = ir.from_proto(onnx.parser.parse_model(text))
    InferShapes()(made)
    return made


def kept(of: ir.Model) -> list[int]:
    """How many groups the normalisation of the result has, if it is one."""
    KeepStatistics()(of)
    maker = of.graph.outputs[0].producer()
    assert maker is not None
    if maker.op_type != "GroupNormalization":
        return []
    return [maker.attributes["num_groups"].as_int()]


@pytest.mark.parametrize(("sizes", "tail"), TAILS.values(), ids=TAILS)
@pytest.mark.parametrize("mean", [0, 300])
def test_results_and_gradients_are_those_of_torch(sizes: str, tail: str, mean: int):
    graph = model(sizes, tail)
    assert kept(graph) == [GROUPS]
    rng = np.random.default_rng(0)
    arrays = {"x": mean + rng.normal(size=SHAPE), "scale": rng.normal(size=6),
              "bias": rng.normal(size=6), "seed": rng.normal(size=SHAPE)}  # fmt: skip
    seed = ir.val("seed", ir.DataType.FLOAT, SHAPE)
    graph.graph.inputs.append(seed)
    trained = list(graph.graph.inputs[:3])
    found = differentiate(graph, {graph.graph.outputs[0]: seed}, trained)
    graph.graph.outputs.extend(found[value] for value in trained)
    LowerKeptStatistics()(graph)
    shapes = {str(value.name): value.shape.numpy() for value in graph.graph.inputs}  # type: ignore[union-attr]
    feeds = {key: array.reshape(shapes[key]).astype(np.float32) for key, array in arrays.items()}
    session = onnxruntime.InferenceSession(ir.to_proto(graph).SerializeToString())
    results = session.run(None, feeds)

    x, scale, bias = (
        torch.tensor(feeds[key].reshape(arrays[key].shape), dtype=torch.float64, requires_grad=True)
        for key in ("x", "scale", "bias")
    )
    y = torch.nn.functional.group_norm(x, GROUPS, scale, bias, eps=1e-3)
    y.backward(torch.tensor(feeds["seed"], dtype=torch.float64))
    for got, wanted in zip(results, (y.detach(), x.grad, scale.grad, bias.grad), strict=True):
        expected = wanted.numpy()
        assert_near(got.reshape(expected.shape), expected, 2e-6 * (1 + mean))


@pytest.mark.parametrize(("sizes", "tail", "one"), OTHERS.values(), ids=OTHERS)
def test_what_is_no_normalisation_of_groups_stays(sizes: str, tail: str, one: float):
    assert kept(model(sizes, tail, one)) == []


def test_what_nothing_reads_is_lowered_as_in_inference():
    graph = model(*TAILS["sum"])
    assert kept(graph) == [GROUPS]
    LowerKeptStatistics()(graph)
    assert "InstanceNormalization" in {node.op_type for node in graph.graph}
