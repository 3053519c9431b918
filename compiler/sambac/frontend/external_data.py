"""External data: tensors that lie in files beside the model are mapped, never read.

A model names such a file by a path relative to its own folder. Paths that lead out of that
folder, directly or through a symbolic link, are refused: a model must not read other files.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError
from sambac.graph.nodes import Holder, all_tensors


def map_external_data(model: ir.Model, name: str, path: Path | None = None) -> None:
    """Replace every external tensor of `model` by one that is mapped from its file.

    The files lie in the folder of the model's `path` or, where that is a symbolic link, in the
    folder of what it points to; without a path, in the folder that each tensor names. `name` is
    the model's name in messages. Raises `CompileError` that lists what is missing, too short or
    outside of these folders.
    """
    files = _Files(path)
    problems: dict[str, None] = {}
    for holder, name_there, tensor in list(_external_tensors(model)):
        try:
            _replace(holder, name_there, tensor, files.tensor(tensor))
        except _BadDataError as problem:
            problems.setdefault(str(problem))
    if problems:
        raise CompileError(f"{name}: {listed(tuple(problems))}")


def locations(model: ir.Model) -> Iterable[str]:
    """Return the names that `model` has for other files, each once."""
    return dict.fromkeys(str(tensor.location) for _, _, tensor in _external_tensors(model))


class _BadDataError(Exception):
    """A tensor's data cannot be used; the message says why and what to do."""


def _external_tensors(model: ir.Model) -> Iterator[tuple[Holder, str, ir.ExternalTensor]]:
    """Yield every external tensor of the model and its functions, with what holds it."""
    for holder, name, tensor in all_tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            yield holder, name, tensor


def _replace(holder: Holder, name: str, old: ir.TensorProtocol, new: ir.TensorProtocol) -> None:
    if isinstance(holder, ir.Graph):
        holder.initializers[name].const_value = new
        return
    attribute = holder.attributes[name]
    if attribute.type == ir.AttributeType.TENSOR:
        holder.attributes[name] = ir.AttrTensor(name, new)
    else:
        tensors = [new if tensor is old else tensor for tensor in attribute.as_tensors()]
        holder.attributes[name] = ir.AttrTensors(name, tensors)


@dataclass
class _Files:
    """The data files of one model, each mapped once."""

    path: Path | None
    maps: dict[Path, np.ndarray[tuple[int], np.dtype[np.uint8]]] = field(default_factory=dict)

    def tensor(self, tensor: ir.ExternalTensor) -> ir.TensorProtocol:
        """Return `tensor` as a view of its mapped file."""
        nbytes = _checked_size(tensor)
        content = self._content(tensor)
        begin = tensor.offset or 0
        if begin + nbytes > len(content):
            raise _BadDataError(
                f"'{tensor.location}' is too short: tensor '{tensor.name}' ends at byte "
                f"{begin + nbytes} of a file of {len(content)}; copy or export the file again"
            )
        return _view(tensor, content[begin : begin + nbytes])

    def _content(self, tensor: ir.ExternalTensor) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        path = _confined(str(tensor.location), self._folders(tensor))
        if path not in self.maps:
            self.maps[path] = _map(path)
        return self.maps[path]

    def _folders(self, tensor: ir.ExternalTensor) -> tuple[Path, ...]:
        """Return the folders that data may lie in; locations are relative to the first."""
        if self.path is None:
            return (Path(tensor.base_dir or ".").resolve(),)
        return self.path.parent.resolve(), self.path.resolve().parent


def _confined(location: str, folders: tuple[Path, ...]) -> Path:
    """Return the path behind `location`, which has to lie in one of `folders`."""
    folder = folders[0]
    if "\0" in location:
        raise _BadDataError(f"its external data {location!r} cannot be a file; export it again")
    path = (folder / location).resolve()
    if Path(location).is_absolute() or not any(path.is_relative_to(root) for root in folders):
        raise _BadDataError(
            f"its external data '{location}' leads out of the model's folder '{folder}'; "
            "put the file itself into that folder and export the model with its plain name"
        )
    if not path.is_file():
        raise _BadDataError(
            f"its external data file '{location}' is missing from '{folder}'; put it there"
        )
    return path


def _checked_size(tensor: ir.ExternalTensor) -> int:
    """Return the tensor's size in bytes, which has to agree with what the model declares."""
    if tensor.dtype == ir.DataType.STRING:
        raise _BadDataError(
            f"tensor '{tensor.name}' holds strings, which cannot be external data; "
            "store them in the model"
        )
    nbytes = math.ceil(tensor.dtype.itemsize * tensor.size)
    if tensor.length is not None and tensor.length != nbytes:
        raise _BadDataError(
            f"tensor '{tensor.name}' needs {nbytes} bytes by its shape and type, but declares "
            f"{tensor.length} bytes of external data; export the model again"
        )
    if (tensor.offset or 0) < 0:
        raise _BadDataError(
            f"tensor '{tensor.name}' declares the negative offset {tensor.offset}; "
            "export the model again"
        )
    return nbytes


def _map(path: Path) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Map a whole file, read-only."""
    if path.stat().st_size == 0:
        return np.zeros(0, np.uint8)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, np.uint8)


def _view(
    tensor: ir.ExternalTensor, content: np.ndarray[tuple[int], np.dtype[np.uint8]]
) -> ir.TensorProtocol:
    if tensor.dtype.bitwidth < 8:
        return ir.PackedTensor(content, tensor.dtype, shape=tensor.shape, name=tensor.name)
    array = content.view(np.dtype(tensor.dtype.numpy()).newbyteorder("<"))
    shaped = array.reshape(tensor.shape.numpy())
    return ir.Tensor(shaped, tensor.dtype, shape=tensor.shape, name=tensor.name)
