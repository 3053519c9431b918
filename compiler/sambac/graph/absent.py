"""Tensors whose content is not there: a model is compiled from shapes alone.

A 70-billion-parameter model on PyTorch's `meta` device has names, types and shapes, but no numbers.
A training program takes them as inputs; whoever runs it supplies the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError, InternalError

_NAMES_SHOWN = 5


class AbsentTensor(ir.LazyTensor):
    """A tensor with a type and a shape; asking for its content raises `InternalError`."""

    def __init__(self, dtype: ir.DataType, shape: Sequence[int], name: str | None = None) -> None:
        super().__init__(partial(_refuse, name), dtype, ir.Shape(shape, frozen=True), name=name)


def _refuse(name: str | None) -> NoReturn:
    raise InternalError(f"the content of '{name}' is asked for, but the model has none")


def is_absent(tensor: ir.TensorProtocol | None) -> bool:
    """Tell whether `tensor` is one without content."""
    return isinstance(tensor, AbsentTensor)


def require_content(model: ir.Model, name: str) -> None:
    """Raise `CompileError` that lists the weights of `model` without content, if there are any."""
    initializers = model.graph.initializers.items()
    absent = [f"'{weight}'" for weight, value in initializers if is_absent(value.const_value)]
    if absent:
        raise CompileError(
            f"{name} has no values for {len(absent)} of its weights "
            f"({listed(absent, _NAMES_SHOWN, ', ')}), which are constants in a program for "
            "inference. Give the module its weights, or compile it with train (--train): such a "
            "program evaluates too, with weights from a file or a seed when it runs."
        )
