"""ONNX models where a torch module is expected: what they are called with, and what they return."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import nn

from sambaflow.samba.errors import SambaError
from sambaflow.samba.tensors.tensor import SambaTensor
from sambahost.arrays import torch_type

if TYPE_CHECKING:
    import onnx


class OnnxStandIn(nn.Module):
    """Stands for an ONNX model whose PEF the compiler made from the file.

    Inputs and outputs are called as in the file; `forward` calls an input `x.1` `x_1`. Its weights
    are in the PEF, so the module has no parameters, and it cannot be called on the host.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self.__dict__["name"] = model.graph.name
        self._model = model
        weights = {item.name for item in model.graph.initializer}
        names = [port.name for port in model.graph.input if port.name not in weights]
        self._names = {re.sub(r"\W|^(?=\d)", "_", name): name for name in names}
        self.__dict__["forward"] = _Signature(self._names)

    def outputs_of(self, inputs: Mapping[str, torch.Tensor]) -> tuple[SambaTensor, ...]:
        """Return the outputs, without values, for inputs as `forward` calls them.

        Raises `SambaError` for one whose shape does not follow from those of the inputs.
        """
        found = [_described(port) for port in self._model.graph.output]
        if None in found:
            given = {self._names[argument]: tensor for argument, tensor in inputs.items()}
            found = [_described(port) for port in _inferred(self._model, given).graph.output]
        outputs = tuple(output for output in found if output is not None)
        if len(outputs) < len(found):
            raise SambaError(
                "the ONNX model has outputs whose shapes do not follow from those of its inputs; "
                "give them fixed shapes in the file"
            )
        return outputs


class _Signature:
    """A function with these arguments to `inspect`; the model runs on the device alone."""

    def __init__(self, arguments: Iterable[str]) -> None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in arguments])

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise SambaError("an ONNX model does not run on the host; run it with samba.session.run")


def is_onnx(model: object) -> TypeGuard[onnx.ModelProto]:
    """Return whether `model` is an ONNX model; there is none before somebody imports onnx."""
    found = sys.modules.get("onnx")
    return found is not None and isinstance(model, found.ModelProto)


def _inferred(model: onnx.ModelProto, inputs: Mapping[str, torch.Tensor]) -> onnx.ModelProto:
    """Return `model` with shapes that follow from those of `inputs`."""
    import onnx  # here: nobody else waits for it, and whoever has such a model has imported it

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for port in copy.graph.input:
        if port.name in inputs:
            _fix(port.type.tensor_type.shape.dim, inputs[port.name].shape)
    for port in copy.graph.output:
        port.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(copy, data_prop=True)


def _fix(dims: Iterable[onnx.TensorShapeProto.Dimension], sizes: Iterable[int]) -> None:
    for dim, size in zip(dims, sizes, strict=False):
        dim.dim_value = size


def _described(port: onnx.ValueInfoProto) -> SambaTensor | None:
    """Return an output without values, None if its shape is open."""
    kind = port.type.tensor_type
    if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    shape = [dim.dim_value for dim in kind.shape.dim]
    return SambaTensor(shape=shape, dtype=torch_type(kind.elem_type), name=port.name)
