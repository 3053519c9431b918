"""What this host can do that not every host can, by the names that programs require it by."""

from __future__ import annotations

import numpy as np

from pef import onnx_fields as onnx
from pef.wire import bytes_field, int_field, text_field
from sambarun.errors import RunError

from .opening import Tuning, create_session

_BLOCKED_DOMAIN = "com.microsoft.nchwc"
_IR_VERSION = 8
_FLOAT = 1
_PROBE_SHAPE = (1, 4, 1, 1)


def host_features(tuning: Tuning) -> frozenset[str]:
    """Return the features of this host, as far as the provider's kernels have them.

    `nchwc16` and `nchwc8`: onnxruntime's convolutions in blocks of so many channels. An operator
    that puts a small image into blocks tells: it rounds the channels up to a whole block.
    """
    if not tuning.provider.is_processor:
        return frozenset()  # its kernels are not those that are asked about
    try:
        session = create_session(_probe(), "", tuning)
    except RunError:
        return frozenset()  # a build without these operators
    (blocked,) = session.run(None, {"x": np.zeros(_PROBE_SHAPE, np.float32)})
    return frozenset({f"nchwc{blocked.shape[1]}"})


def _probe() -> bytes:
    """Return a serialised ModelProto of the one operator."""
    node = b"".join(
        (
            text_field(onnx.NODE_INPUT, "x"),
            text_field(onnx.NODE_OUTPUT, "y"),
            text_field(onnx.NODE_OP_TYPE, "ReorderInput"),
            text_field(onnx.NODE_DOMAIN, _BLOCKED_DOMAIN),
        )
    )
    graph = b"".join(
        (
            bytes_field(onnx.GRAPH_NODE, node),
            text_field(onnx.GRAPH_NAME, "probe"),
            bytes_field(onnx.GRAPH_INPUT, _tensor("x")),
            bytes_field(onnx.GRAPH_OUTPUT, _tensor("y")),
        )
    )
    opset = text_field(onnx.OPSET_DOMAIN, _BLOCKED_DOMAIN) + int_field(onnx.OPSET_VERSION, 1)
    return b"".join(
        (
            int_field(onnx.MODEL_IR_VERSION, _IR_VERSION),
            bytes_field(onnx.MODEL_OPSET_IMPORT, opset),
            bytes_field(onnx.MODEL_GRAPH, graph),
        )
    )


def _tensor(name: str) -> bytes:
    """Return a ValueInfoProto of a tensor of float32."""
    tensor = bytes_field(onnx.TYPE_TENSOR, int_field(onnx.TENSOR_TYPE_ELEMENT, _FLOAT))
    return text_field(onnx.VALUE_NAME, name) + bytes_field(onnx.VALUE_TYPE, tensor)
