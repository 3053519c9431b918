"""The skeleton of a model: its graph as a ModelProto without the data of its weights.

Shape inference and type queries need the graph and the small constants, never the weights:
without them they take milliseconds, whatever the model's size.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from sambac.errors import CompileError, root_cause

from .absent import is_absent
from .type_protos import value_info

# Shapes, axes, scales and region-of-interest vectors steer inference; all are far smaller.
_MAX_DATA_BYTES = 1024


def skeleton(model: ir.Model) -> onnx.ModelProto:
    """Return `model` as a message in which large initializers of the main graph are inputs.

    Values inside carry the types that `model` knows; graph outputs too. Raises `CompileError`
    for a model whose names are no text or whose attributes are not of the type they claim.
    """
    try:
        return _skeleton(model)
    except (ir.serde.SerdeError, UnicodeDecodeError) as error:
        raise CompileError(
            f"the model is damaged ({root_cause(error)}); export or copy it again"
        ) from error


def _skeleton(model: ir.Model) -> onnx.ModelProto:
    proto = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    graph = proto.graph
    graph.name = model.graph.name or "main"
    for value in model.graph.inputs:
        graph.input.append(value_info(value))
    for name, value in model.graph.initializers.items():
        _add_constant(graph, name, value.const_value)
    for node in model.graph:
        ir.serde.serialize_node_into(graph.node.add(), node)
    for value in model.graph.outputs:
        graph.output.append(value_info(value))
    return proto


def _add_constant(graph: onnx.GraphProto, name: str, tensor: ir.TensorProtocol | None) -> None:
    if tensor is None:
        return
    small = tensor.nbytes <= _MAX_DATA_BYTES and not is_absent(tensor)
    if small or tensor.dtype == ir.DataType.STRING:
        message = graph.initializer.add()
        ir.serde.serialize_tensor_into(message, tensor)
        message.name = name
        return
    info = graph.input.add()
    info.name = name
    info.type.tensor_type.elem_type = int(tensor.dtype)
    shape = info.type.tensor_type.shape
    for size in tensor.shape.numpy():
        shape.dim.add().dim_value = size
