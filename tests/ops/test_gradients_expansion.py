"""Gradients through function bodies: the rules of operators that have one are hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from gradient_check import Case, Graph, build

from sambac.autodiff import expansion, walker
from sambac.ops import gradient_of

rng = np.random.default_rng(13)


def normal(*shape: int) -> np.ndarray:
    return np.asarray(rng.normal(size=shape))


def sample(op: str, *inputs: np.ndarray | None, label: str = "", **attributes: Any) -> Case:
    return Case(op, inputs, lambda *_: None, attributes, label=label)


X = normal(2, 4, 6)
IMAGE = normal(2, 4, 3, 5)
LABELS = np.array([1, 3, 0])
HEADS = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
ALLOWED = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
ANGLES = normal(2, 3, 4), normal(2, 3, 4)

CASES = [
    sample("Attention", *HEADS),
    sample("Attention", *HEADS, ALLOWED, label="mask", softcap=0.9),
    sample("Attention", *HEADS, label="causal", is_causal=1),
    sample("Clip", X, np.array(-0.7), np.array(0.6)),
    sample("Elu", X),
    sample("Gelu", X),
    sample("Gelu", X, label="tanh", approximate="tanh"),
    sample("GroupNormalization", IMAGE, normal(4), normal(4), num_groups=2),
    sample("HardSigmoid", X),
    sample("HardSwish", X),
    sample("LayerNormalization", X, normal(6), normal(6)),
    sample("LeakyRelu", X, alpha=0.2),
    sample("LogSoftmax", X, axis=1),
    sample("MeanVarianceNormalization", IMAGE, axes=[0, 2, 3]),
    sample("Mish", X),
    sample("NegativeLogLikelihoodLoss", normal(3, 4), LABELS, reduction="mean"),
    sample("PRelu", X, normal(6)),
    sample("RMSNormalization", X, normal(6)),
    sample("ReduceL2", X, np.array([1]), keepdims=0),
    sample("ReduceLogSumExp", X, np.array([0, 2])),
    sample("Relu", X),
    sample("RotaryEmbedding", HEADS[0], *ANGLES),
    sample("Selu", X),
    sample("Shrink", X, lambd=0.4, bias=0.1),
    sample("Softmax", X),
    sample("SoftmaxCrossEntropyLoss", normal(3, 4), LABELS, np.abs(normal(4)), ignore_index=3),
    sample("Softplus", X),
    sample("Softsign", X),
    sample("ThresholdedRelu", X, alpha=0.3),
]


def gradients(case: Case, graph: Graph) -> dict[int, np.ndarray]:
    session = onnxruntime.InferenceSession(graph.model.SerializeToString())
    feeds = {f"x{i}": array.astype(np.float32) for i, array in case.fed.items()}
    made = session.run(list(graph.gradients.values()), {**feeds, **graph.weights})
    return dict(zip(graph.gradients, made, strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_body_gives_the_gradients_of_the_rule(case: Case, monkeypatch: pytest.MonkeyPatch):
    expected = gradients(case, build(case, np.float32))

    def hiding(node: ir.Node) -> Any:
        return None if node.op_type == case.op else gradient_of(node)

    for module in (expansion, walker):
        monkeypatch.setattr(module, "gradient_of", hiding)
    graph = build(case, np.float32)
    assert case.op not in {node.op_type for node in graph.model.graph.node}
    onnx.checker.check_model(graph.model, full_check=True)
    actual = gradients(case, graph)
    assert actual.keys() == expected.keys()
    for index, gradient in expected.items():
        np.testing.assert_allclose(actual[index], gradient, rtol=2e-4, atol=2e-5)
