"""Weights: initializers whose content stays in the PEF, appended to a graph's bytes.

onnxruntime maps the file itself and copies nothing but what it rearranges for its kernels.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pef
from pef import dtypes
from pef import onnx_fields as onnx
from pef.wire import bytes_field, int_field, text_field
from sambarun.errors import RunError

# onnxruntime wants to see small constants while it infers shapes, and then cannot follow a
# reference into a file; copying so few bytes costs nothing. Empty ones cannot be referred to.
_INLINE_BYTES = 1024


def add_weights(
    model: bytes | memoryview, weights: Iterable[tuple[str, pef.Symbol]], file: pef.PefFile
) -> bytes:
    """Return the ModelProto `model` with an initializer for each (name in the graph, symbol).

    Concatenated messages are merged when read, so the model itself need not be taken apart.
    Raises `RunError` for a weight that cannot be an initializer.
    """
    initializers = [
        bytes_field(onnx.GRAPH_INITIALIZER, _initializer(name, symbol, file))
        for name, symbol in weights
    ]
    return b"".join((model, bytes_field(onnx.MODEL_GRAPH, b"".join(initializers))))


def _initializer(name: str, symbol: pef.Symbol, file: pef.PefFile) -> bytes:
    """Return the TensorProto of one weight."""
    ref = symbol.data
    shape = static_shape(symbol)
    if ref is None or shape is None or symbol.dtype == dtypes.STRING:
        raise RunError(f"Weight '{symbol.name}' has no content of known size in the file.")
    fields = [int_field(onnx.TENSOR_DIMS, size) for size in shape]
    fields.append(int_field(onnx.TENSOR_DATA_TYPE, symbol.dtype))
    fields.append(text_field(onnx.TENSOR_NAME, name))
    if ref.size <= _INLINE_BYTES:
        fields.append(bytes_field(onnx.TENSOR_RAW_DATA, file.view(ref)))
    else:
        fields.append(_entry("location", os.path.basename(file.path)))
        fields.append(_entry("offset", str(file.file_offset(ref))))
        fields.append(_entry("length", str(ref.size)))
        fields.append(int_field(onnx.TENSOR_DATA_LOCATION, onnx.EXTERNAL))
    return b"".join(fields)


def static_shape(symbol: pef.Symbol) -> tuple[int, ...] | None:
    """Return the shape of a symbol if every dimension is known, else None."""
    if symbol.shape is None:
        return None
    sizes = tuple(size for size in symbol.shape if isinstance(size, int))
    return sizes if len(sizes) == len(symbol.shape) else None


def _entry(key: str, value: str) -> bytes:
    entry = text_field(onnx.ENTRY_KEY, key) + text_field(onnx.ENTRY_VALUE, value)
    return bytes_field(onnx.TENSOR_EXTERNAL_DATA, entry)
