"""Values that are maps: onnx_ir reads no message in which a value is declared as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from sambac.graph import protos
from sambac.graph.type_protos import proto_holds_map, read_type


def without_maps(
    model: onnx.ModelProto,
) -> tuple[onnx.ModelProto, Mapping[str, ir.TypeProtocol | None]]:
    """Return `model` with no value declared as a map, and the types its inputs lost, by name.

    Without any, that is `model` itself; otherwise a copy. Types of values that operators make
    can be inferred again. Raises `ValueError` for types that nobody knows.
    """
    if not any(True for _ in _maps(model)):
        return model, {}
    types = {
        info.name: read_type(info.type) for info in model.graph.input if proto_holds_map(info.type)
    }
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in _maps(copy):
        info.ClearField("type")
    return copy, types


def _maps(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield every declaration of a value that is or contains maps."""
    infos = [*_declared(model.graph)]
    for function in model.functions:
        infos += function.value_info
        infos += _inside(function.node)
    return (info for info in infos if proto_holds_map(info.type))


def _declared(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.output, *graph.value_info)
    yield from _inside(graph.node)


def _inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.ValueInfoProto]:
    for node in nodes:
        for graph in protos.subgraphs(node):
            yield from _declared(graph)
