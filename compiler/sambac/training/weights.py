"""What of an ONNX model trains, by the names of its initializers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from sambac.frontend import load
from sambac.options import CompileOptions

from .canonical import untie_statistics
from .parameters import roles_of


class OnnxWeights(NamedTuple):
    """The parameters of a model, and the statistics of its normalisations, with their values."""

    parameters: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray]


def untied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which each running statistic is an initializer that nothing else reads."""
    found = ir.from_proto(model)
    untie_statistics(found)
    return ir.to_proto(found)


def weights_of(model: onnx.ModelProto) -> OnnxWeights:
    """Return what becomes parameters and buffers when `model` is compiled to train.

    Raises `CompileError` for a model that cannot be read.
    """
    found = load(model, CompileOptions()).model
    untie_statistics(found)
    roles = roles_of(found)

    def valued(names: tuple[str, ...]) -> dict[str, np.ndarray]:
        tensors = {name: found.graph.initializers[name].const_value for name in names}
        return {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}

    return OnnxWeights(valued(roles.parameters), valued(roles.buffers))
