"""The bytes of a tensor as the file holds them: little-endian, row-major, sub-byte types packed."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from pef import defaults

from .graph.constants import strings


def tensor_bytes(tensor: ir.TensorProtocol) -> bytes | memoryview:
    """Return the content of `tensor`, without a copy where its memory already has that form."""
    if tensor.dtype.bitwidth < 8:
        return tensor.tobytes()
    array = np.ascontiguousarray(tensor.numpy())
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8).data


def equal_tensors(one: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    """Tell whether two tensors have the same type, shape and content."""
    if one is other:
        return True
    kinds = [(t.dtype, tuple(t.shape.numpy())) for t in (one, other)]
    if kinds[0] != kinds[1]:
        return False
    if one.dtype == ir.DataType.STRING:
        return one.tobytes() == other.tobytes()
    first, second = (np.frombuffer(tensor_bytes(tensor), np.uint8) for tensor in (one, other))
    return bool(np.array_equal(first, second))


def default_bytes(tensor: ir.TensorProtocol) -> bytes:
    """Return the default `tensor` of an input whose size is open: its shape, then its content."""
    shape = tuple(tensor.shape.numpy())
    if tensor.dtype != ir.DataType.STRING:
        return defaults.encode(shape, tensor_bytes(tensor))
    return defaults.encode(shape, strings(tensor))
