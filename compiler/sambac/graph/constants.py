"""Which constants are part of a program, and which are weights with content of their own."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

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
