"""Tensors whose content is not there: a model is compiled from shapes alone.

A 70-billion-parameter model on PyTorch's `meta` device has names, types and shapes, but no numbers.
The program takes them as inputs; whoever runs it supplies the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import onnx_ir as ir

from sambac.errors import InternalError


class AbsentTensor(ir.LazyTensor):
    """A tensor with a type and a shape; asking for its content raises `InternalError`."""

    def __init__(self, dtype: ir.DataType, shape: Sequence[int], name: str | None = None) -> None:
        super().__init__(partial(_refuse, name), dtype, ir.Shape(shape, frozen=True), name=name)


def _refuse(name: str | None) -> NoReturn:
    raise InternalError(f"the content of '{name}' is asked for, but the model has none")


def is_absent(tensor: ir.TensorProtocol | None) -> bool:
    """Tell whether `tensor` is one without content."""
    return isinstance(tensor, AbsentTensor)
