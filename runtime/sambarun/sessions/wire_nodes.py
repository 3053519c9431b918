"""Operators of a serialised model, read, made and put in the place of others."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pef import onnx_fields as onnx
from pef.wire import bytes_field, content, fields, int_field, number, text, text_field

_INT, _TENSOR, _INTS = 2, 4, 7


@dataclass(frozen=True)
class Node:
    """An operator: the names of its values, and what stands in its attributes.

    `flags` are its attributes that are whole numbers; `attributes` all of them, serialised, by
    name.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""
    domain: str = ""
    flags: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, bytes] = field(default_factory=dict)

    def serialised(self) -> bytes:
        """Return it as a NodeProto."""
        return b"".join(
            (
                *(text_field(onnx.NODE_INPUT, each) for each in self.inputs),
                *(text_field(onnx.NODE_OUTPUT, each) for each in self.outputs),
                text_field(onnx.NODE_NAME, self.name),
                text_field(onnx.NODE_OP_TYPE, self.op_type),
                *(bytes_field(onnx.NODE_ATTRIBUTE, each) for each in self.attributes.values()),
                text_field(onnx.NODE_DOMAIN, self.domain),
            )
        )


Rule = Callable[[Node], Sequence[Node]]
"""What stands for a node: itself alone, or others of the same results."""


def rewritten(model: bytes, rule: Rule) -> bytes:
    """Return a serialised ModelProto with what `rule` makes of each node, also inside of others.

    Raises `PefError` where it is malformed.
    """
    return b"".join(
        bytes_field(key, _graph(content(value), rule)) if key == onnx.MODEL_GRAPH else bytes(raw)
        for key, value, raw in fields(memoryview(model))
    )


def number_attribute(name: str, value: int) -> Mapping[str, bytes]:
    """Return an attribute of a whole number that is not negative, by its name."""
    kind = int_field(onnx.ATTRIBUTE_TYPE, _INT)
    return {
        name: text_field(onnx.ATTRIBUTE_NAME, name) + int_field(onnx.ATTRIBUTE_INT, value) + kind
    }


def numbers_attribute(name: str, values: Sequence[int]) -> Mapping[str, bytes]:
    """Return an attribute of whole numbers that are not negative, by its name."""
    listed = b"".join(int_field(onnx.ATTRIBUTE_INTS, each) for each in values)
    kind = int_field(onnx.ATTRIBUTE_TYPE, _INTS)
    return {name: text_field(onnx.ATTRIBUTE_NAME, name) + listed + kind}


def float_attribute(name: str, value: float) -> Mapping[str, bytes]:
    """Return an attribute of a tensor of one number of float32 without axes, by its name."""
    raw = bytes_field(onnx.TENSOR_RAW_DATA, struct.pack("<f", value))
    tensor = bytes_field(onnx.ATTRIBUTE_TENSOR, int_field(onnx.TENSOR_DATA_TYPE, 1) + raw)
    kind = int_field(onnx.ATTRIBUTE_TYPE, _TENSOR)
    return {name: text_field(onnx.ATTRIBUTE_NAME, name) + tensor + kind}


def renamed(attribute: bytes, name: str) -> bytes:
    """Return a serialised attribute by another name."""
    kept = (
        bytes(raw) for key, _, raw in fields(memoryview(attribute)) if key != onnx.ATTRIBUTE_NAME
    )
    return text_field(onnx.ATTRIBUTE_NAME, name) + b"".join(kept)


def _graph(graph: memoryview, rule: Rule) -> bytes:
    parts: list[bytes] = []
    for key, value, raw in fields(graph):
        if key == onnx.GRAPH_NODE:
            made = rule(_read(content(value), rule))
            parts += (bytes_field(onnx.GRAPH_NODE, each.serialised()) for each in made)
        else:
            parts.append(bytes(raw))
    return b"".join(parts)


def _read(node: memoryview, rule: Rule) -> Node:
    inputs, outputs = list[str](), list[str]()
    words, flags, attributes = dict[int, str](), dict[str, int](), dict[str, bytes]()
    for key, value, _ in fields(node):
        if key == onnx.NODE_INPUT:
            inputs.append(text(value))
        elif key == onnx.NODE_OUTPUT:
            outputs.append(text(value))
        elif key == onnx.NODE_ATTRIBUTE:
            name, flag, raw = _attribute(content(value), rule)
            attributes[name] = raw
            flags |= {} if flag is None else {name: flag}
        elif key in _WORDS:
            words[key] = text(value)
    op_type, name, domain = (words.get(key, "") for key in _WORDS)
    return Node(op_type, tuple(inputs), tuple(outputs), name, domain, flags, attributes)


_WORDS = (onnx.NODE_OP_TYPE, onnx.NODE_NAME, onnx.NODE_DOMAIN)


def _attribute(attribute: memoryview, rule: Rule) -> tuple[str, int | None, bytes]:
    """Return its name, its whole number if it has one, and it with rewritten graphs."""
    name, flag, parts = "", None, list[bytes]()
    for key, value, raw in fields(attribute):
        if key in onnx.ATTRIBUTE_GRAPH_FIELDS:
            parts.append(bytes_field(key, _graph(content(value), rule)))
            continue
        if key == onnx.ATTRIBUTE_NAME:
            name = text(value)
        elif key == onnx.ATTRIBUTE_INT:
            flag = number(value)
        parts.append(bytes(raw))
    return name, flag, b"".join(parts)
