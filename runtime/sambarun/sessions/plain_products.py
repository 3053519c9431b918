"""Products as other providers read them: those that pass over attributes give wrong numbers.

    FusedMatMul(A, B, transBatchA=1)  ->  FusedMatMul(Transpose(A, [1, 2, 0, 3]), B)      B likewise

OpenVINO's reads A as it is, without a word. Matrices of another rank than compilers write are left
to the processor: onnxruntime refuses the Transpose.
"""

from __future__ import annotations

from pef import onnx_fields as onnx
from pef.wire import bytes_field, content, fields, int_field, number, text, text_field

_FLAGS = {"transBatchA": 0, "transBatchB": 1}
_PERM = (1, 2, 0, 3)
_INTS = 7


def with_plain_products(model: bytes) -> bytes:
    """Return a serialised ModelProto whose products transpose no batches.

    Raises `PefError` where it is malformed.
    """
    if not any(flag.encode() in model for flag in _FLAGS):
        return model
    return b"".join(
        bytes_field(key, _graph(content(value))) if key == onnx.MODEL_GRAPH else bytes(raw)
        for key, value, raw in fields(memoryview(model))
    )


def _graph(graph: memoryview) -> bytes:
    parts: list[bytes] = []
    for key, value, raw in fields(graph):
        if key == onnx.GRAPH_NODE:
            parts += (bytes_field(onnx.GRAPH_NODE, node) for node in _nodes(content(value)))
        else:
            parts.append(bytes(raw))
    return b"".join(parts)


def _nodes(node: memoryview) -> list[bytes]:
    """Return what stands for `node`: transposes, if it has any to leave out, and itself."""
    inputs, words, rest, turned = list[str](), dict[int, str](), list[bytes](), list[int]()
    for key, value, raw in fields(node):
        if key == onnx.NODE_INPUT:
            inputs.append(text(value))
        elif key == onnx.NODE_ATTRIBUTE:
            flag = _flag(content(value))
            turned += [] if flag is None else [flag]
            rest.append(_attribute(content(value)) if flag is None else b"")
        else:
            if key in (onnx.NODE_NAME, onnx.NODE_OUTPUT):
                words.setdefault(key, text(value))
            rest.append(bytes(raw))
    made = []
    for at in turned:
        result = f"{words.get(onnx.NODE_OUTPUT, '')} operand {at}"
        made.append(_transpose(inputs[at], result, words.get(onnx.NODE_NAME, "")))
        inputs[at] = result
    return [*made, b"".join((*(text_field(onnx.NODE_INPUT, each) for each in inputs), *rest))]


def _flag(attribute: memoryview) -> int | None:
    """Return which operand an attribute transposes the batches of; None for any other one."""
    name, value = "", 0
    for key, found, _ in fields(attribute):
        if key == onnx.ATTRIBUTE_NAME:
            name = text(found)
        elif key == onnx.ATTRIBUTE_INT:
            value = number(found)
    return _FLAGS.get(name) if value else None


def _attribute(attribute: memoryview) -> bytes:
    """Return an attribute of a node, with what is in its graphs rewritten."""
    return bytes_field(
        onnx.NODE_ATTRIBUTE,
        b"".join(
            bytes_field(key, _graph(content(value)))
            if key in onnx.ATTRIBUTE_GRAPH_FIELDS
            else bytes(raw)
            for key, value, raw in fields(attribute)
        ),
    )


def _transpose(operand: str, result: str, name: str) -> bytes:
    axes = b"".join(int_field(onnx.ATTRIBUTE_INTS, axis) for axis in _PERM)
    kind = int_field(onnx.ATTRIBUTE_TYPE, _INTS)
    perm = text_field(onnx.ATTRIBUTE_NAME, "perm") + axes + kind
    return b"".join(
        (
            text_field(onnx.NODE_INPUT, operand),
            text_field(onnx.NODE_OUTPUT, result),
            text_field(onnx.NODE_NAME, name),
            text_field(onnx.NODE_OP_TYPE, "Transpose"),
            bytes_field(onnx.NODE_ATTRIBUTE, perm),
        )
    )
