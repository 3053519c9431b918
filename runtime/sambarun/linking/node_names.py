"""Names of nodes by which they are known again in the profile of a session: their numbers."""

from __future__ import annotations

import re

from pef import onnx_fields as onnx
from pef.wire import bytes_field, content, fields, text_field

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
