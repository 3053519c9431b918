"""Scatters with a reduction give one value, whatever the threads do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.passes.legalize.infer_shapes import infer
from sambac.passes.workarounds.make_scatters_deterministic import MakeScattersDeterministic

LINES, WIDTH = 1024, 64
ALL_ROWS = np.stack([np.arange(40) // 5, np.arange(40) % 5 - 5], axis=1)
FUNCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def scatter(
    reduction: str,
    *,
    lines: int = LINES,
    width: int = WIDTH,
    dtype: ir.DataType = ir.DataType.FLOAT,
    index: np.ndarray | None = None,
    opset: int = 18,
) -> ir.Model:
    """Return a scatter of rows into a table of 8 by 5 rows, as the middle of a graph."""
    x = ir.val("x", dtype, (8, 5, width))
    places = ir.val("index", ir.DataType.INT64, (lines, 2))
    updates = ir.val("updates", dtype, (lines, width))
    outputs = [ir.val("between"), ir.val("y")]
    nodes = [
        ir.node(
            "ScatterND", [x, places, updates], {"reduction": reduction}, outputs=outputs[:1],
            name="scatter",
        ),
        ir.node("Identity", outputs[:1], outputs=outputs[1:], name="after"),
    ]  # fmt: skip
    inputs, constants = [x, places, updates], []
    if index is not None:
        places.const_value = ir.Tensor(index, name="index")
        inputs, constants = [x, updates], [places]
    graph = ir.Graph(
        inputs, outputs[1:], nodes=nodes, initializers=constants, opset_imports={"": opset},
        name="g",
    )  # fmt: skip
    model = ir.Model(graph, ir_version=10)
    infer(model)
    return model


def scatters(model: ir.Model) -> int:
    return sum(node.op_type == "ScatterND" for node in model.graph)


def run_on_two_threads(model: ir.Model) -> Callable[..., np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(
        ir.serde.serialize_model(model).SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
    )
    return lambda feeds: session.run(None, feeds)[0]


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.INT64])
@pytest.mark.parametrize("reduction", FUNCTIONS)
def test_repeated_indices_give_one_value(reduction: str, dtype: ir.DataType):
    model = scatter(reduction, dtype=dtype)
    assert MakeScattersDeterministic()(model).modified
    assert scatters(model) == 0
    rng = np.random.default_rng(0)
    index = rng.integers((-8, -5), (8, 5), (LINES, 2))
    updates = rng.choice([-1, 1, 2], (LINES, WIDTH), p=[0.49, 0.5, 0.01]).astype(dtype.numpy())
    x = rng.choice([-2, 1, 3], (8, 5, WIDTH)).astype(dtype.numpy())
    expected = x.astype(np.float64)
    FUNCTIONS[reduction].at(expected, tuple(index.T), updates)
    run = run_on_two_threads(model)
    results = [run({"x": x, "index": index, "updates": updates}) for _ in range(30)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-5)
    assert len({result.tobytes() for result in results}) == 1


def test_sums_need_no_newer_operator_set():
    model = scatter("add", opset=16)
    assert MakeScattersDeterministic()(model).modified
    run_on_two_threads(model)


@pytest.mark.parametrize(
    "model",
    [
        scatter("none"),
        scatter("add", lines=32),
        scatter("add", lines=40, width=1000, index=ALL_ROWS),
    ],
    ids=["no reduction", "small", "no index twice"],
)
def test_what_cannot_race_stays(model: ir.Model):
    assert not MakeScattersDeterministic()(model).modified
    assert scatters(model) == 1


def test_constant_indices_that_repeat_race():
    model = scatter("add", index=np.zeros((LINES, 2), np.int64))
    assert MakeScattersDeterministic()(model).modified
