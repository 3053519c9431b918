"""The frontend for ONNX: a file, a ModelProto or an onnx_ir model becomes a `Source`.

What onnx_ir would not read in a message is taken care of first: it has no type for values declared
as maps, and sparse constants become dense ones, which is all that kernels read.
"""

from __future__ import annotations

import hashlib
import logging
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from pef.files import in_text
from pef.foreign import reading, why
from sambac.errors import CompileError, root_cause
from sambac.graph import protos
from sambac.graph.nodes import all_tensors
from sambac.graph.value_types import proto_holds_map, read_shape, read_type, spell
from sambac.options import CompileOptions

from .external_data import locations, map_external_data
from .finishing import finish
from .source import Source
from .versions import raised

_MAX_PROTOBUF = 2**31 - 1
# A dense form of so many elements is a mistake, not a model.
_MOST_ELEMENTS = 1 << 31
# The keys of ModelProto's fields: what a file that was an ONNX model once begins with.
_FIELD_KEYS = frozenset((0x08, 0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72, 0xA2, 0xCA))


def load_onnx(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model, options: CompileOptions
) -> Source:
    """Return `model` ready for the passes: stripped of annotations, inputs fixed as asked for.

    Weights stay where they are: in the file's pages for external data. A model given from memory
    is not changed. Raises `CompileError` for whatever cannot be read or used.
    """
    if isinstance(model, ir.Model):
        name = _memory_name(model.graph.name)
        copy = model.clone()
        if _has_external_data(copy):
            map_external_data(copy, name)
        return _apart(finish(copy, options, name, noted=True))
    if isinstance(model, onnx.ModelProto):
        name = _memory_name(model.graph.name)
        graph = _from_proto(model, name)
        if _has_external_data(graph):
            raise CompileError(
                f"the model '{name}' keeps weights in other files, and a ModelProto does not say "
                "in which folder; compile the .onnx file by its path"
            )
        return _apart(finish(graph, options, name, noted=True))
    return _load_file(Path(model), options)


def _apart(source: Source) -> Source:
    """Return `source` with initializers of names of their own: what is renamed is not the caller's.

    Their content stays where the caller has it.
    """
    for holder, name, tensor in tuple(all_tensors(source.model)):
        if isinstance(holder, ir.Graph) and tensor is not None:
            holder.initializers[name].const_value = _renamable(tensor, name)
    return source


def _renamable(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """Return `tensor` with a name of its own; one of another kind, which nobody shares, as it is.

    A message may hold a part of a tensor, and is refused where that is found.
    """
    shape = ir.Shape(tensor.shape.numpy())
    if isinstance(tensor, ir.StringTensor):
        return ir.StringTensor(tensor.string_data(), shape=shape, name=name)
    whole = isinstance(tensor, ir.serde.TensorProtoTensor) and not tensor.raw.HasField("segment")
    if whole or isinstance(tensor, ir.Tensor):
        return ir.LazyTensor(partial(_itself, tensor), dtype=tensor.dtype, shape=shape, name=name)
    return tensor


def _itself(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return tensor


def external_files(path: Path) -> tuple[Path, ...]:
    """Return the files in which the model at `path` keeps tensors, none of one that is damaged."""
    try:
        graph = _from_proto(_read(path)[0], path.name)
    except CompileError:
        return ()
    return tuple(path.parent / location for location in locations(graph))


def _memory_name(name: str | None) -> str:
    return name or "model"


def _load_file(path: Path, options: CompileOptions) -> Source:
    proto, sha256 = _read(path)
    graph = _from_proto(proto, path.name)
    del proto  # what lists hold is in the graph now, and is not to be in memory twice
    if _has_external_data(graph):
        map_external_data(graph, path.name, path)
    return finish(graph, options, in_text(path.stem), sha256, noted=True)


def _has_external_data(model: ir.Model) -> bool:
    return any(isinstance(tensor, ir.ExternalTensor) for _, _, tensor in all_tensors(model))


def _read(path: Path) -> tuple[onnx.ModelProto, str]:
    """Return the file's message and the hash of its bytes."""
    if path.is_dir():
        raise CompileError(f"'{path}' is a folder; give the .onnx file in it")
    if path.exists() and not path.is_file():
        raise CompileError(f"'{path}' is a device or pipe; store the model in a file and give that")
    try:
        size = path.stat().st_size
        if size == 0:
            raise CompileError(f"'{path}' is empty; export or copy the model again")
        if size > _MAX_PROTOBUF:
            raise CompileError(
                f"'{path}' has {size} bytes, more than an ONNX file can have (2 GiB); "
                "export the model with external data"
            )
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(path, data)
    except FileNotFoundError:
        raise CompileError(f"there is no file '{path}'; check its path") from None
    except OSError as error:
        raise CompileError(f"'{path}' cannot be read: {error.strerror or error}") from error


def _parse(path: Path, data: mmap.mmap) -> tuple[onnx.ModelProto, str]:
    proto = onnx.ModelProto()
    with memoryview(data) as content:
        sha256 = hashlib.sha256(content).hexdigest()
        first_byte = content[0]
        with reading(lambda _: _unreadable(path, first_byte)):
            proto.ParseFromString(content)
    if not proto.HasField("graph"):
        raise _unreadable(path, data[0])
    return proto, sha256


def _unreadable(path: Path, first_byte: int) -> CompileError:
    if first_byte in _FIELD_KEYS:
        return CompileError(
            f"'{path}' is no complete ONNX model: it is cut short or damaged, or it is another "
            "kind of file; export or copy it again"
        )
    return CompileError(f"'{path}' is not an ONNX model; give a file that was exported to ONNX")


def _from_proto(proto: onnx.ModelProto, name: str) -> ir.Model:
    def refuse(error: Exception) -> CompileError:
        problem = why(root_cause(error)).split(". ")[0]
        return CompileError(f"{name} is not a valid ONNX model: {problem}; export it again")

    with reading(refuse), _quiet():
        proto, maps = _without_maps(raised(_densified(proto)))
        model = ir.serde.deserialize_model(proto)
    _keep_inputs(model, proto, name)
    for value in model.graph.inputs:
        value.type = maps.get(str(value.name), value.type)
    return model


def _keep_inputs(model: ir.Model, proto: onnx.ModelProto, name: str) -> None:
    """Let inputs that are outputs, too, have the shapes that they are declared with as inputs.

    Raises `CompileError` if they are of another type as outputs.
    """
    declared = {info.name: info.type for info in proto.graph.input}
    for value in model.graph.inputs:
        if not value.is_graph_output() or (given := declared.get(str(value.name))) is None:
            continue
        found, expected = spell(value.type), spell(read_type(given))
        if found and expected and found != expected:
            raise CompileError(
                f"{name} declares '{value.name}' as {expected} among its inputs and as {found} "
                "among its outputs; export it again"
            )
        shape = read_shape(given)
        if shape is not None:
            value.shape = shape


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep onnx_ir from warning about dangling names, which become errors of ours."""
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _without_maps(
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


def _densified(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with dense forms of its sparse initializers and sparse Constant nodes.

    Without any, that is `model` itself; otherwise a copy.
    """
    sparse = _is_sparse(model.graph) or any(_any_sparse(f.node) for f in model.functions)
    if not sparse:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _densify_graph(copy.graph)
    for function in copy.functions:
        _densify_nodes(function.node)
    return copy


def _is_sparse(graph: onnx.GraphProto) -> bool:
    return bool(graph.sparse_initializer) or _any_sparse(graph.node)


def _any_sparse(nodes: Iterable[onnx.NodeProto]) -> bool:
    return any(
        attribute.type == onnx.AttributeProto.SPARSE_TENSOR
        or (attribute.type == onnx.AttributeProto.GRAPH and _is_sparse(attribute.g))
        or any(_is_sparse(graph) for graph in attribute.graphs)
        for node in nodes
        for attribute in node.attribute
    )


def _densify_graph(graph: onnx.GraphProto) -> None:
    graph.initializer.extend(_dense(sparse) for sparse in graph.sparse_initializer)
    graph.ClearField("sparse_initializer")
    _densify_nodes(graph.node)


def _densify_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                attribute.t.CopyFrom(_dense(attribute.sparse_tensor))
                attribute.ClearField("sparse_tensor")
                attribute.type = onnx.AttributeProto.TENSOR
                attribute.name = "value"
            elif attribute.type == onnx.AttributeProto.GRAPH:
                _densify_graph(attribute.g)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    _densify_graph(graph)


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return the dense form; indices are linear, or one row of coordinates per value."""
    if any(tensor.external_data for tensor in (sparse.values, sparse.indices)):
        # Read here, it would come from a path relative to where the compiler was started.
        raise ValueError(f"the sparse constant '{sparse.values.name}' lies in another file")
    shape = tuple(sparse.dims)
    if any(size < 0 for size in shape) or math.prod(shape) >= _MOST_ELEMENTS:
        raise ValueError(f"the sparse constant '{sparse.values.name}' has the sizes {list(shape)}")
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    if indices.ndim == 2:
        indices = np.ravel_multi_index(tuple(indices.T), shape)
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[indices] = values
    return numpy_helper.from_array(dense.reshape(shape), sparse.values.name)
