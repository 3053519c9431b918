"""The types and shapes of what one operator makes, from those of what it reads."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir
from onnx import defs, shape_inference

from sambac.errors import InternalError

from .value_types import read_shape, read_type, value_info

_SMALL = 1024
"""Constants of at most this many elements are shown to shape inference."""


def infer_results(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Set the types and shapes of the outputs of `node` from those of its inputs.

    Contrib operators keep type and shape of their first input. Raises `InternalError` for inputs
    that the operator does not take.
    """
    if node.domain != "":
        first = node.inputs[0]
        assert first is not None
        node.outputs[0].type, node.outputs[0].shape = first.type, first.shape
        return
    schema = defs.get_schema(node.op_type, opsets[""], "")
    proto = ir.serde.serialize_node(node)
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None:
            continue
        types[str(value.name)] = value_info(value).type
        tensor = value.const_value
        if value.is_initializer() and tensor is not None and tensor.size <= _SMALL:
            data[str(value.name)] = ir.serde.serialize_tensor(tensor)
    try:
        found = shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=_protos(opsets)
        )
    except shape_inference.InferenceError as error:
        raise InternalError(f"a badly made {node.op_type}: {error}") from error
    for value in node.outputs:
        if value.name in found:
            value.type = read_type(found[value.name])
            value.shape = read_shape(found[value.name])


def _protos(opsets: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [
        onnx.OperatorSetIdProto(domain=domain, version=version)
        for domain, version in sorted(opsets.items())
    ]
