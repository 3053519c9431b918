"""The order of a linked graph's nodes, which decides when onnxruntime computes what.

onnxruntime does not keep the order of the list. It takes the nodes whose results no other node
reads, the last of them in the list first, and puts before each what it needs. In a training step
these are the gradients of parameters: the last one needs the whole backward pass, so that all
others would wait, and with them the activations that they read, until that has ended.

Listed at the end and in reverse, every gradient comes as soon as there is what it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence

from pef import onnx_fields as onnx
from pef.wire import content, fields, text

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
