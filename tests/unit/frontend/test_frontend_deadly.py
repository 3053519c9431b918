"""What would end the process, were it handed on to a library, is refused while it is loaded."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("ConvTranspose", {"group": 0}),
        ("Conv", {"group": -1}),
        ("Conv", {"strides": [1, 0]}),
        ("ConvTranspose", {"dilations": [0, 1]}),
        ("DeformConv", {"offset_group": 0}),
        ("MaxPool", {"kernel_shape": [0, 2]}),
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [-1, 1]}),
        ("GroupNormalization", {"num_groups": 0}),
        ("Attention", {"q_num_heads": 0, "kv_num_heads": 1}),
        ("Attention", {"q_num_heads": 1, "kv_num_heads": 0}),
        ("DepthToSpace", {"blocksize": 2**32}),
        ("SpaceToDepth", {"blocksize": 2**62}),
    ],
)
def test_counts_out_of_range(op: str, attributes: dict[str, Any]) -> None:
    """Some kernels of onnxruntime divide by them, which ends the process."""
    inputs = [
        onnx.helper.make_tensor_value_info(f"x{at}", onnx.TensorProto.FLOAT, [1, 4, 4, 4])
        for at in range(3)
    ]
    node = onnx.helper.make_node(op, ["x0", "x1", "x2"], ["y"], name="n", **attributes)
    graph = onnx.helper.make_graph(
        [node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("y")]
    )
    opsets = [onnx.helper.make_opsetid("", 23)]
    with pytest.raises(CompileError, match=rf"operator {op} 'n' has the attribute '\w+' of "):
        load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), CompileOptions())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("s = SequenceConstruct(x) y = SequenceAt(s, none)", "SequenceAt.*a number from operand 1"),
        ("s = SequenceConstruct(x) t = SequenceErase(s, none) y = SequenceAt(t, one)", "operand 1"),
        (
            "s = SequenceConstruct(x) t = SequenceInsert(s, x, none) y = SequenceAt(t, one)",
            "operand 2",
        ),
        ("y = OneHot(one, none, v)", "OneHot.*operand 1, which has no elements"),
        (
            "y = Loop<body = b (int64 i, bool c, float[2] p) => (bool c, p) {}>(none, , x)",
            "Loop.*operand 0, which has no elements",
        ),
        ("y = STFT(m, one, , one)", "STFT.*needs 3 dimensions"),
    ],
)
def test_what_would_end_the_process_is_refused(body: str, says: str) -> None:
    """onnxruntime reads behind the end of such operands, or stops on a failed assertion."""
    constants = "int64[0] none = {}, int64 one = {1}, float[2] v = {0, 1}, float[1,2] m = {0, 1}"
    graph = f"g (float[2] x) => (float[n] y) <{constants}> {{{body}}}"
    text = f'<ir_version: 8, opset_import: ["": 17]> {graph}'
    with pytest.raises(CompileError, match=f"(?s){says}"):
        load(onnx.parser.parse_model(text), CompileOptions())
