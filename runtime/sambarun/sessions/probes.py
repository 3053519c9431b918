"""Models of one operator, which ask onnxruntime what it can do."""

from __future__ import annotations

from collections.abc import Sequence

from pef import onnx_fields as onnx
from pef.wire import bytes_field, int_field, text_field

_IR_VERSION = 8
_OPSET = 13
FLOAT, UINT8, INT8, INT32 = 1, 2, 3, 6
"""ONNX's numbers of element types."""


def probe(
    op_type: str,
    domain: str = "",
    opset: int = _OPSET,
    inputs: Sequence[tuple[str, int]] = (("x", FLOAT),),
    result: int = FLOAT,
) -> bytes:
    """Return a serialised ModelProto in which an operator makes `y`, a `result`, of `inputs`.

    Inputs are names with element types; all shapes are open.
    """
    node = b"".join(
        (
            *(text_field(onnx.NODE_INPUT, name) for name, _ in inputs),
            text_field(onnx.NODE_OUTPUT, "y"),
            text_field(onnx.NODE_OP_TYPE, op_type),
            text_field(onnx.NODE_DOMAIN, domain),
        )
    )
    graph = b"".join(
        (
            bytes_field(onnx.GRAPH_NODE, node),
            text_field(onnx.GRAPH_NAME, "probe"),
            *(bytes_field(onnx.GRAPH_INPUT, _tensor(*port)) for port in inputs),
            bytes_field(onnx.GRAPH_OUTPUT, _tensor("y", result)),
        )
    )
    imports = text_field(onnx.OPSET_DOMAIN, domain) + int_field(onnx.OPSET_VERSION, opset)
    return b"".join(
        (
            int_field(onnx.MODEL_IR_VERSION, _IR_VERSION),
            bytes_field(onnx.MODEL_OPSET_IMPORT, imports),
            bytes_field(onnx.MODEL_GRAPH, graph),
        )
    )


def _tensor(name: str, element: int) -> bytes:
    """Return a ValueInfoProto of a tensor of this element type."""
    tensor = bytes_field(onnx.TYPE_TENSOR, int_field(onnx.TENSOR_TYPE_ELEMENT, element))
    return text_field(onnx.VALUE_NAME, name) + bytes_field(onnx.VALUE_TYPE, tensor)
