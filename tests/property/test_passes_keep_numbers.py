"""Every pass keeps the numbers, the signature and the legal form of random models."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_model

from sambac.passes.legalize.check_legal import check_legal
from sambac.passes.pipelines import (
    AFTER_GRADIENTS,
    BEFORE_GRADIENTS,
    LEGALIZE,
    SELECT_KERNELS,
    SELECT_TRAINING_KERNELS,
    SIMPLIFY,
)

STEPS = {
    step.name: step
    for step in (*BEFORE_GRADIENTS, *AFTER_GRADIENTS, *SIMPLIFY, *SELECT_TRAINING_KERNELS)
}
MODELS = st.tuples(st.integers(0, 2**32), st.integers(1, 40))
FEW = settings(max_examples=15, deadline=None)


def legal(model: onnx.ModelProto) -> ir.Model:
    made = ir.from_proto(model)
    for step in LEGALIZE:
        step(made)
    return made


def outputs(model: ir.Model) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal(value.shape, dtype=np.float32)
        for value in session.get_inputs()
    }
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize("name", sorted(STEPS))
@FEW
@given(MODELS)
def test_a_pass_keeps_the_numbers(name: str, drawn: tuple[int, int]) -> None:
    model = legal(random_model(*drawn))
    before = outputs(model)
    step = STEPS[name]
    step(model)
    assert check_legal(model) == []
    after = outputs(model)
    assert list(before) == list(after)
    for key, expected in before.items():
        largest = max(1.0, float(np.max(np.abs(expected))))
        np.testing.assert_allclose(after[key], expected, rtol=2e-4, atol=2e-5 * largest)


@FEW
@given(MODELS)
def test_simplifying_twice_adds_nothing(drawn: tuple[int, int]) -> None:
    """A second round may find more to remove, but never adds an operator."""
    model = legal(random_model(*drawn))
    for step in SIMPLIFY:
        step(model)
    once = len(model.graph)
    for step in SIMPLIFY:
        step(model)
    assert len(model.graph) <= once


@FEW
@given(MODELS)
def test_passes_are_deterministic(drawn: tuple[int, int]) -> None:
    texts = []
    for _ in range(2):
        model = legal(random_model(*drawn))
        for step in (*SIMPLIFY, *SELECT_KERNELS):
            step(model)
        texts.append(ir.to_proto(model).SerializeToString(deterministic=True))
    assert texts[0] == texts[1]


@FEW
@given(MODELS)
def test_modified_is_honest(drawn: tuple[int, int]) -> None:
    model = legal(random_model(*drawn))
    for step in (*SIMPLIFY, *SELECT_KERNELS):
        before = str(model.graph)
        result = step(model)
        if not result.modified:
            assert str(model.graph) == before
