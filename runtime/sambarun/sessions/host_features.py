"""What this host can do that not every host can, by the names that programs require it by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pef import onnx_fields as onnx
from pef.wire import bytes_field, int_field, text_field
from sambarun.arrays import Array
from sambarun.errors import RunError

from .opening import Tuning, create_session

_BLOCKED_DOMAIN = "com.microsoft.nchwc"
_IR_VERSION = 8
_INTEGER_PRODUCTS = 10  # the opset that brought them
_FLOAT, _UINT8, _INT8, _INT32 = 1, 2, 3, 6
_IMAGE = (1, 4, 1, 1)
# Many rows and one have kernels of their own, and so have sums of few and of many terms.
_TERMS, _COLUMNS, _ROWS = 64, 16, (1, 6)


def host_features(tuning: Tuning) -> frozenset[str]:
    """Return the features of this host, as far as the provider's kernels have them.

    `nchwc16` and `nchwc8`: onnxruntime's convolutions in blocks of so many channels. An operator
    that puts a small image into blocks tells: it rounds the channels up to a whole block.
    `u8s8`: exact products of unsigned and signed bytes. Processors without an instruction for them
    add pairs up in 16 bits, which saturate; the product of the largest bytes tells.
    """
    if not tuning.provider.is_processor:
        return frozenset()  # its kernels are not those that are asked about
    block = _blocks(tuning)
    found = {f"nchwc{block}"} if block else set()
    return frozenset(found | ({"u8s8"} if _multiplies_bytes(tuning) else set()))


def _blocks(tuning: Tuning) -> int:
    """Return the channels of a block; 0 if there are no blocks."""
    probe = _probe("ReorderInput", (_BLOCKED_DOMAIN, 1), [("x", _FLOAT)], _FLOAT)
    blocked = _run(probe, tuning, {"x": np.zeros(_IMAGE, np.float32)})
    return 0 if blocked is None else int(blocked.shape[1])


def _multiplies_bytes(tuning: Tuning) -> bool:
    """Tell whether products of the largest bytes are exact."""
    ports = [("a", _UINT8), ("b", _INT8)]
    probe = _probe("MatMulInteger", ("", _INTEGER_PRODUCTS), ports, _INT32)
    for rows in _ROWS:
        left = np.full((rows, _TERMS), 255, np.uint8)
        right = np.full((_TERMS, _COLUMNS), 127, np.int8)
        product = _run(probe, tuning, {"a": left, "b": right})
        if product is None or not np.all(product == _TERMS * 255 * 127):
            return False
    return True


def _run(probe: bytes, tuning: Tuning, feeds: dict[str, Array]) -> Array | None:
    """Return what a model of one operator gives; None for a build without this operator."""
    try:
        session = create_session(probe, "", tuning)
    except RunError:
        return None
    result: Array = session.run(None, feeds)[0]
    return result


def _probe(
    op_type: str, opset: tuple[str, int], inputs: Sequence[tuple[str, int]], result: int
) -> bytes:
    """Return a serialised ModelProto of the one operator, of the domain and version of `opset`."""
    domain, version = opset
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
    imported = text_field(onnx.OPSET_DOMAIN, domain) + int_field(onnx.OPSET_VERSION, version)
    return b"".join(
        (
            int_field(onnx.MODEL_IR_VERSION, _IR_VERSION),
            bytes_field(onnx.MODEL_OPSET_IMPORT, imported),
            bytes_field(onnx.MODEL_GRAPH, graph),
        )
    )


def _tensor(name: str, element: int) -> bytes:
    """Return a ValueInfoProto of a tensor of this element type."""
    tensor = bytes_field(onnx.TYPE_TENSOR, int_field(onnx.TENSOR_TYPE_ELEMENT, element))
    return text_field(onnx.VALUE_NAME, name) + bytes_field(onnx.VALUE_TYPE, tensor)
