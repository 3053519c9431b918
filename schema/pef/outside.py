"""What a program in a PEF must not hold: anything that lets onnxruntime open another file.

Tensors may say that their content lies in another file (`external_data`), a few operators name a
file in an attribute, and a model may bring settings of its own for the session. All of it is
looked for on the wire format, in every message that can hold a tensor or an operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from . import onnx_fields as onnx
from .errors import PefError
from .wire import content, fields, number, text

OPERATORS: Final = frozenset({"EPContext"})
"""The operators of onnxruntime that read a file, of whatever domain they say they are."""

SETTINGS: Final = "ort_config"
"""The key of a model's metadata under which onnxruntime looks for settings of the session."""

# Without one of these texts there is nothing to find. They are looked for one by one: Python
# takes ten times as long for an expression of several.
_SIGNS = tuple(re.compile(sign.encode()) for sign in ("location", SETTINGS, *sorted(OPERATORS)))
# The messages in each message, by field, that may hold what is looked for.
_INSIDE: Mapping[str, Mapping[int, str]] = {
    "model": {
        onnx.MODEL_GRAPH: "graph",
        onnx.MODEL_METADATA: "metadata",
        onnx.MODEL_TRAINING: "training",
        onnx.MODEL_FUNCTIONS: "function",
    },
    "training": {onnx.TRAINING_INITIALIZATION: "graph", onnx.TRAINING_ALGORITHM: "graph"},
    "function": {onnx.FUNCTION_NODE: "node", onnx.FUNCTION_ATTRIBUTE: "attribute"},
    "graph": {
        onnx.GRAPH_NODE: "node",
        onnx.GRAPH_INITIALIZER: "tensor",
        onnx.GRAPH_SPARSE_INITIALIZER: "sparse",
    },
    "node": {onnx.NODE_ATTRIBUTE: "attribute"},
    "attribute": {
        onnx.ATTRIBUTE_TENSOR: "tensor",
        onnx.ATTRIBUTE_TENSORS: "tensor",
        onnx.ATTRIBUTE_GRAPH: "graph",
        onnx.ATTRIBUTE_GRAPHS: "graph",
        onnx.ATTRIBUTE_SPARSE: "sparse",
        onnx.ATTRIBUTE_SPARSES: "sparse",
    },
    "sparse": {onnx.SPARSE_VALUES: "tensor", onnx.SPARSE_INDICES: "tensor"},
}


def outside_references(program: memoryview) -> list[str]:
    """Return what a serialised ModelProto wants of other files, a phrase each; none if all is well.

    A message that is malformed, and has a sign of such a request, counts as one.
    """
    if not any(sign.search(program) for sign in _SIGNS):
        return []
    try:
        return list(dict.fromkeys(_references(program)))
    except PefError as error:
        return [f"has a graph that cannot be checked ({error})"]


def _references(program: memoryview) -> Iterator[str]:
    pending = [("model", program)]
    while pending:
        kind, message = pending.pop()
        inside = _INSIDE.get(kind, {})
        for key, value, _ in fields(message):
            if key in inside:
                pending.append((inside[key], content(value)))
            elif kind == "tensor" and _is_reference(key, value):
                yield f"keeps the content of {_tensor_name(message)} in another file"
            elif kind == "node" and key == onnx.NODE_OP_TYPE and text(value) in OPERATORS:
                yield f"holds the operator {text(value)}, which reads another file"
            elif kind == "metadata" and key == onnx.ENTRY_KEY and text(value) == SETTINGS:
                yield f"brings settings for the session ({SETTINGS})"


def _is_reference(key: int, value: int | memoryview) -> bool:
    return key == onnx.TENSOR_EXTERNAL_DATA or (
        key == onnx.TENSOR_DATA_LOCATION and number(value) != 0
    )


def _tensor_name(tensor: memoryview) -> str:
    for key, value, _ in fields(tensor):
        if key == onnx.TENSOR_NAME:
            return f"'{text(value)}'"
    return "a tensor"
