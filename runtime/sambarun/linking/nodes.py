"""Nodes of a linked graph: their order, and names by which a profile knows them.

Their order decides when onnxruntime computes what. It does not keep the order of the list. It takes
the nodes whose results no other node reads, the last of them in the list first, and puts before
each what it needs. In a training step these are the gradients of parameters: the last one needs the
whole backward pass, so that all others would wait, and with them the activations that they read,
until that has ended.

Listed at the end and in reverse, every gradient comes as soon as there is what it is made of.

Their names are their numbers, by which they are known again in the profile of a session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pef import onnx_fields as onnx
from pef.wire import bytes_field, content, fields, text, text_field

Field = bytes | memoryview


def results_soon(body: Sequence[Field]) -> list[Field]:
    """Return the fields of a GraphProto with the nodes that no other node reads last, reversed.

    A graph whose nodes hold graphs of their own, which may read anything, stays as it is.
    """
    outputs: dict[int, list[str]] = {}
    read: set[str] = set()
    for position, piece in enumerate(body):
        for key, value, _ in fields(memoryview(piece)):
            if key != onnx.GRAPH_NODE:
                continue
            inputs, outputs[position], plain = _ends(content(value))
            if not plain:
                return list(body)
            read.update(inputs)
    last = [position for position, names in outputs.items() if read.isdisjoint(names)]
    moved = set(last)
    kept = [piece for position, piece in enumerate(body) if position not in moved]
    return [*kept, *(body[position] for position in reversed(last))]


def _ends(node: memoryview) -> tuple[list[str], list[str], bool]:
    """Return what a node reads and makes, and whether it holds no graphs."""
    inputs, outputs, plain = [], [], True
    for key, value, _ in fields(node):
        if key == onnx.NODE_INPUT:
            inputs.append(text(value))
        elif key == onnx.NODE_OUTPUT:
            outputs.append(text(value))
        elif key == onnx.NODE_ATTRIBUTE:
            plain = plain and not any(
                inner in onnx.ATTRIBUTE_GRAPH_FIELDS for inner, _, _ in fields(content(value))
            )
    return inputs, outputs, plain


_PREFIX = "node "


def numbered(model: memoryview) -> bytes:
    """Return a serialised ModelProto whose nodes are named by their positions in the main graph.

    Raises `PefError` where it is malformed.
    """
    return b"".join(
        bytes_field(key, _numbered(content(value))) if key == onnx.MODEL_GRAPH else raw
        for key, value, raw in fields(model)
    )


def number_in(name: str) -> int | None:
    """Return the position with which `name` begins; None if it begins with none.

    What onnxruntime fuses it calls after one of its nodes.
    """
    found = re.match(rf"{_PREFIX}(\d+)(?!\d)", name)
    return int(found[1]) if found else None


def _numbered(graph: memoryview) -> bytes:
    pieces: list[bytes | memoryview] = []
    count = 0
    for key, value, raw in fields(graph):
        if key == onnx.GRAPH_NODE:
            # The last name that a message has counts.
            name = text_field(onnx.NODE_NAME, f"{_PREFIX}{count}")
            pieces.append(bytes_field(key, bytes(content(value)) + name))
            count += 1
        else:
            pieces.append(raw)
    return b"".join(pieces)
