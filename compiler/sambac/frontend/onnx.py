"""The frontend for ONNX: a file, a ModelProto or an onnx_ir model becomes a `Source`."""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx_ir as ir

from pef.foreign import reading, why
from sambac.errors import CompileError, root_cause
from sambac.options import CompileOptions

from .external_data import has_external_data, locations, map_external_data
from .finishing import finish
from .readable import densified, without_maps
from .source import Source
from .versions import raised

_MAX_PROTOBUF = 2**31 - 1
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
        map_external_data(copy, name)
        return finish(copy, options, name, None)
    if isinstance(model, onnx.ModelProto):
        name = _memory_name(model.graph.name)
        graph = _from_proto(model, name)
        if has_external_data(graph):
            raise CompileError(
                f"the model '{name}' keeps weights in other files, and a ModelProto does not say "
                "in which folder; compile the .onnx file by its path"
            )
        return finish(graph, options, name, None)
    return _load_file(Path(model), options)


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
    map_external_data(graph, path.name, path)
    return finish(graph, options, path.stem, sha256)


def _read(path: Path) -> tuple[onnx.ModelProto, str]:
    """Return the file's message and the hash of its bytes."""
    if path.is_dir():
        raise CompileError(f"'{path}' is a folder; give the .onnx file in it")
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
        proto, maps = without_maps(raised(densified(proto)))
        model = ir.serde.deserialize_model(proto)
    for value in model.graph.inputs:
        value.type = maps.get(str(value.name), value.type)
    return model


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
