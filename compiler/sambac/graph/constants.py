"""Constants: which are part of a program, which are weights, which are absent, and their bytes.

Absent is the content of a model that is compiled from shapes alone. A 70-billion-parameter model on
PyTorch's `meta` device has names, types and shapes, but no numbers: the program takes them as
inputs; whoever runs it supplies the content.

In the file bytes are little-endian, row-major, and types smaller than a byte are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnx_ir as ir

from pef import defaults
from sambac.errors import InternalError

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[Any]]

# Shapes, axes, indices and the like are far smaller; lookup tables of this size do no harm.
_MAX_LITERAL_BYTES = 1024


def has_element_type(tensor: ir.TensorProtocol) -> bool:
    """Return whether the element type of `tensor` is one that ONNX defines."""
    try:
        return tensor.dtype != ir.DataType.UNDEFINED
    except ValueError:
        return False


def is_literal(tensor: ir.TensorProtocol) -> bool:
    """Return whether `tensor` stays inside the programs that read it.

    Literals are strings, integers and booleans of at most 1024 bytes, and everything with at most
    one element. Whatever else is an initializer is a weight: a symbol with content in the file.
    """
    if tensor.dtype == ir.DataType.STRING or tensor.size <= 1:
        return True
    return not tensor.dtype.is_floating_point() and tensor.nbytes <= _MAX_LITERAL_BYTES


def strings(tensor: ir.TensorProtocol) -> list[str]:
    """Return the elements of a tensor of strings; `UnicodeDecodeError` if they are no UTF-8."""
    # Not by way of numpy, whose bytes end before trailing zeros.
    return [text.decode() for text in ir.serde.serialize_tensor(tensor).string_data]


def is_uniform(array: Array) -> bool:
    """Tell whether the array has only one element in memory."""
    return array.size > 0 and all(
        stride == 0 or size == 1 for stride, size in zip(array.strides, array.shape, strict=True)
    )


class AbsentTensor(ir.LazyTensor):
    """A tensor with a type and a shape; asking for its content raises `InternalError`."""

    def __init__(self, dtype: ir.DataType, shape: Sequence[int], name: str | None = None) -> None:
        super().__init__(partial(_refuse, name), dtype, ir.Shape(shape, frozen=True), name=name)


def _refuse(name: str | None) -> NoReturn:
    raise InternalError(f"the content of '{name}' is asked for, but the model has none")


def is_absent(tensor: ir.TensorProtocol | None) -> bool:
    """Tell whether `tensor` is one without content."""
    return isinstance(tensor, AbsentTensor)


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
