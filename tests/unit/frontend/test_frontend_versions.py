"""Models older and newer than onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sambac
import sambarun
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions

Make = Callable[..., onnx.ModelProto]
OPTIONS = CompileOptions()


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 13, 17, 21, 26])
def test_opsets_that_onnxruntime_runs(make: Make, opset: int) -> None:
    model = load(make(opset=opset), OPTIONS).model
    assert model.opset_imports[""] == max(opset, 7)


def test_a_newer_model_is_taken_for_an_older_one(make: Make) -> None:
    newest = onnx.defs.onnx_opset_version()
    model = load(make(opset=newest, ir_version=onnx.IR_VERSION), OPTIONS).model
    assert 26 <= model.opset_imports[""] <= newest
    assert all(node.version is None for node in model.graph)


@pytest.mark.parametrize("versions", [{"opset": 99}, {"ir_version": 99}])
def test_versions_far_ahead_are_refused(make: Make, versions: dict[str, int]) -> None:
    with pytest.raises(CompileError, match="install a newer onnxruntime"):
        load(make(**versions), OPTIONS)


def test_an_opset_has_to_be_named(make: Make) -> None:
    proto = make()
    del proto.opset_import[:]
    with pytest.raises(CompileError, match="does not say which version"):
        load(proto, OPTIONS)


def test_explicit_broadcasting_is_converted() -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"], broadcast=1, axis=0)],
        "graph",
        [info("a", TensorProto.FLOAT, [2, 3]), info("b", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2, 3])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=3)
    ops = [node.op_type for node in load(proto, OPTIONS).model.graph]
    assert ops == ["Unsqueeze", "Add"]


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 4), (2, 4, 5, 4), (2, 4, 5, 5)])
@pytest.mark.parametrize("slopes", [1, 4])
def test_slopes_of_old_opsets_are_those_of_channels(
    opset: int, shape: tuple[int, ...], slopes: int
) -> None:
    """Whatever the size of the last axis, which slopes of opset 7 would be broadcast from."""
    size = ",".join(map(str, shape))
    text = f"g (float[{size}] x, float[{slopes}] s) => (float[{size}] y)"
    model = onnx.parser.parse_model(
        f'<ir_version: 3, opset_import: ["": {opset}]> {text} {{ a = Neg(x) y = PRelu(a, s) }}'
    )
    x = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    s = np.arange(2, 2 + slopes, dtype=np.float32)
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": x, "s": s})["y"]
    by_channel = s.reshape(1, slopes, *(1 for _ in shape[2:]))
    np.testing.assert_allclose(found, np.where(x > 0, -x * by_channel, -x), rtol=1e-6)
