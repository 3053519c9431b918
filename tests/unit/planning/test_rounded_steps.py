"""Training steps whose numbers are rounded: a device rounds as it reads and writes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pef
import sambac
from benchmarks.device_points import predicted

SIZE = 64


def perceptron() -> onnx.ModelProto:
    """Two layers and a ReLU between them, 8 x 64 to 8 x 64."""
    weights = [numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), f"w{at}") for at in (1, 2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [8, SIZE]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "perceptron", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def step(level: str, precision: str) -> pef.Program:
    options = sambac.CompileOptions(
        level=level,  # type: ignore[arg-type]  # strings here, of known words
        precision=precision,  # type: ignore[arg-type]
        train=True,
        loss=("mse:y,wanted",),
        optimizers=(sambac.SGD(lr=0.1),),
    )
    return sambac.compile(perceptron(), options)


def moved(program: pef.Program) -> int:
    """Return the bytes that a step moves."""
    calls = program.schedule[: program.graphs[0].calls]
    estimates = (program.sections[call].estimate for call in calls)
    return sum(each.bytes_in + each.bytes_out + each.bytes_weights for each in estimates)


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_rounding_takes_no_section_and_moves_nothing(level: str) -> None:
    plain, *rounded = (step(level, each) for each in ("float32", "mixed", "bfloat16"))
    wanted = predicted(plain)
    for program in rounded:
        found = predicted(program)
        assert found.sections == wanted.sections
        assert found.seconds == pytest.approx(wanted.seconds, rel=0.02)
        assert moved(program) <= 1.01 * moved(plain)
