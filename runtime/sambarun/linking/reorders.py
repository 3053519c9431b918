"""Images that one section puts in order and the next into blocks again: in a session both can go.

A section hands out its values in order, whatever its convolutions prefer. Where sections are
linked, with r for ReorderInput, which makes blocks, and o for ReorderOutput, which unmakes them:

    r(o(v))                    ->  v
    r(x) a second time         ->  the first
    o(v) that nothing reads    ->  nothing
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pef import onnx_fields as onnx
from pef.wire import bytes_field, content, fields, number, text, text_field

Field = bytes | memoryview

_DOMAIN = "com.microsoft.nchwc"
_MAKES, _UNMAKES = "ReorderInput", "ReorderOutput"
# Channels in multiples of this fill their blocks, whatever size the host has; those that do not
# have numbers behind them which nobody has defined.
_WHOLE = 16


@dataclass(frozen=True, slots=True)
class _Node:
    """What there is to know of a node: what it reads and makes, and what its graphs name.

    `channels` is that of a ReorderOutput; None if there are other attributes.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    named: frozenset[str] = frozenset()
    channels: int | None = None
    attributes: int = 0


def reordered_once(body: Sequence[Field], results: Collection[str]) -> list[Field]:
    """Return the fields of a GraphProto without reorderings of its main graph that can go.

    Every name must have one meaning, nested graphs included, and nodes must come behind what they
    read. `results` are the names of the graph's outputs.
    """
    if not any(_MAKES.encode() in bytes(piece) for piece in body):
        return list(body)
    nodes = {at: node for at, piece in enumerate(body) for node in _nodes(piece)}
    captured = frozenset[str]().union(*(node.named for node in nodes.values()), results)
    same = _same_values(nodes.values(), captured)
    kept = {
        at: replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        for at, node in nodes.items()
        if same.keys().isdisjoint(node.outputs)
    }
    read = captured.union(*(node.inputs for node in kept.values()))
    unread = {
        at
        for at, node in kept.items()
        if node.op_type == _UNMAKES and read.isdisjoint(node.outputs)
    }
    return [
        _renamed(piece, same) if at in kept else piece
        for at, piece in enumerate(body)
        if at not in nodes or (at in kept and at not in unread)
    ]


def _same_values(nodes: Iterable[_Node], captured: Collection[str]) -> dict[str, str]:
    """Return what to read instead of values in blocks that exist already.

    What nested graphs name keeps its name.
    """
    same: dict[str, str] = {}
    # By values in order, where they lie in blocks: what they were read from, or the first made.
    blocks: dict[str, str] = {}
    for node in nodes:
        if node.op_type == _UNMAKES and node.channels is not None and not node.channels % _WHOLE:
            source = node.inputs[0]
            blocks.setdefault(node.outputs[0], same.get(source, source))
        elif node.op_type == _MAKES and not node.attributes:
            made = node.outputs[0]
            found = blocks.setdefault(node.inputs[0], made)
            if found != made and made not in captured:
                same[made] = found
    return same


def _nodes(piece: Field) -> Iterable[_Node]:
    """Yield the node that a field of a graph is, if it is one."""
    for key, value, _ in fields(memoryview(piece)):
        if key == onnx.GRAPH_NODE:
            yield _node(content(value))


def _node(node: memoryview) -> _Node:
    found: dict[int, list[str]] = {}
    attributes = []
    for key, value, _ in fields(node):
        if key == onnx.NODE_ATTRIBUTE:
            attributes.append(content(value))
        elif key in _TEXTS:
            found.setdefault(key, []).append(text(value))
    op_type = "".join(found.get(onnx.NODE_OP_TYPE, ()))
    inputs, outputs = (tuple(found.get(key, ())) for key in (onnx.NODE_INPUT, onnx.NODE_OUTPUT))
    reorders = found.get(onnx.NODE_DOMAIN) == [_DOMAIN] and len(inputs) == len(outputs) == 1
    return _Node(
        op_type if reorders else "",
        inputs,
        outputs,
        frozenset(name for attribute in attributes for name in _named(attribute)),
        _channels(attributes),
        len(attributes),
    )


_TEXTS = frozenset({onnx.NODE_INPUT, onnx.NODE_OUTPUT, onnx.NODE_OP_TYPE, onnx.NODE_DOMAIN})


def _channels(attributes: Sequence[memoryview]) -> int | None:
    """Return the attribute `channels` if it is the only one."""
    if len(attributes) != 1:
        return None
    found = {key: value for key, value, _ in fields(attributes[0])}
    name, channels = found.get(onnx.ATTRIBUTE_NAME), found.get(onnx.ATTRIBUTE_INT)
    if name is None or channels is None or text(name) != "channels":
        return None
    return number(channels)


def _named(attribute: memoryview) -> Iterable[str]:
    """Yield the names that the graphs in an attribute read or return."""
    for key, value, _ in fields(attribute):
        if key not in onnx.ATTRIBUTE_GRAPH_FIELDS:
            continue
        for inner, piece, raw in fields(content(value)):
            if inner == onnx.GRAPH_OUTPUT:
                yield from (
                    text(name) for at, name, _ in fields(content(piece)) if at == onnx.VALUE_NAME
                )
            for node in _nodes(raw):
                yield from node.inputs
                yield from node.named


def _renamed(piece: Field, same: Mapping[str, str]) -> bytes:
    """Return the field of a node that reads other values instead."""
    ((_, node, _),) = fields(memoryview(piece))
    parts = (
        text_field(key, same.get(text(value), text(value))) if key == onnx.NODE_INPUT else raw
        for key, value, raw in fields(content(node))
    )
    return bytes_field(onnx.GRAPH_NODE, b"".join(parts))
