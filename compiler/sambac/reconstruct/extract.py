"""One section of a PEF as an ONNX model of its own, to look at or to run elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

import pef
from pef.files import folder_in_text, replacing
from pef.foreign import reading, why
from pef.program import Section
from pef.symbols import Symbol
from sambac.errors import CompileError
from sambac.graph.protos import rename_graph

from .programs import parse, portable_program

# Larger weights go into a file beside the model, as a protobuf message ends at 2 GiB.
_INLINE_LIMIT = 64 << 20
_ALIGNMENT = 4096
_UPDATED = "__next"


def extract_section(
    path: str | os.PathLike[str], number: int, output: str | os.PathLike[str]
) -> tuple[Path, ...]:
    """Write section `number` of the PEF at `path` as ONNX and return the files written.

    Tensors that cross the section's border are named after their symbols, nodes after their
    operators; what the section writes over its input `w` is its output `w__next`. Weights are
    inside the model, or in `OUTPUT.data` beside it when they are large.
    Raises `CompileError` for a section that does not exist, `PefError` for a damaged file
    or one whose programs are no ONNX,
    `OSError` where nothing can be written.
    """
    target = Path(output)
    with pef.open(path) as file:
        section = _section(file, number)
        model = _model(file, section)
        symbols = [file.program.symbols[index] for index in section.weights]
        if sum(symbol.size for symbol in symbols) <= _INLINE_LIMIT:
            for symbol in symbols:
                tensor = _header(model, symbol)
                tensor.raw_data = bytes(file.bytes(symbol.data)) if symbol.data else b""
            files: tuple[Path, ...] = (target,)
        else:
            files = (target, target.with_name(target.name + ".data"))
            _write_data(file, model, symbols, files[1])
    with replacing(target) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
        if _is_checkable(model):
            _check(temporary, f"{file.path}: section {number}")
    return files


def _check(path: Path, who: str) -> None:
    """Raise `PefError` if what was extracted is no valid model."""

    def refuse(error: Exception) -> pef.PefError:
        return pef.PefError(f"{who} holds no valid ONNX model: {why(error)}")

    with reading(refuse), folder_in_text(str(path.parent)) as folder:
        onnx.checker.check_model(os.path.join(folder, path.name))


def _is_checkable(model: onnx.ModelProto) -> bool:
    """Tell whether every port has a rank: the checker asks for it, onnxruntime does not."""
    ports = (*model.graph.input, *model.graph.output)
    tensors = (port.type.tensor_type for port in ports if port.type.HasField("tensor_type"))
    return all(tensor.HasField("shape") for tensor in tensors)


def _section(file: pef.PefFile, number: int) -> Section:
    sections = file.program.sections
    if not 0 <= number < len(sections):
        known = f"0 to {len(sections) - 1}" if sections else "none"
        raise CompileError(f"{file.path} has no section {number}; its sections are {known}.")
    return sections[number]


def _model(file: pef.PefFile, section: Section) -> onnx.ModelProto:
    """Return the section's program, renamed, without its weights."""
    program = file.program
    number = portable_program(program, section)
    if number is None:
        raise CompileError(f"Section '{section.name}' of {file.path} has no program to extract.")
    stored = program.programs[number]
    model = parse(file.bytes(stored.graph))
    if model is None:
        raise pef.PefError(f"{file.path}: program {number} is no ONNX model.")
    read, written = (
        [program.symbols[index].name for index in indices]
        for indices in ((*section.inputs, *section.weights), section.outputs)
    )
    written = [f"{name}{_UPDATED}" if name in read else name for name in written]
    formal = (*stored.inputs, *stored.weights, *stored.outputs)
    names = dict(zip(formal, (*read, *written), strict=True))
    rename_graph(model.graph, _Renaming(names))
    nodes = {op.node: op.name for group in section.groups for op in group.operators}
    for position, node in enumerate(model.graph.node):
        node.name = nodes.get(position, "")
    model.graph.name = section.name or "section"
    model.producer_name, model.producer_version = program.producer.tool, program.producer.version
    return model


class _Renaming:
    """Renames formal names, which are unique across all scopes of a program, to symbols.

    A name that stays inside the program stays as it is, unless a symbol bears it.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = {"": "", **names}
        self._taken = set(self._names.values())

    def __call__(self, formal: str) -> str:
        """Return the new name of `formal`."""
        name = self._names.get(formal)
        if name is None:
            name = formal
            while name in self._taken:
                name += "_"
            self._names[formal] = name
            self._taken.add(name)
        return name


def _header(model: onnx.ModelProto, symbol: Symbol) -> onnx.TensorProto:
    """Add an initializer for `symbol` to `model`, still without content."""
    dims = [size for size in symbol.shape or () if isinstance(size, int)]
    tensors = model.graph.initializer
    tensors.append(onnx.TensorProto(name=symbol.name, data_type=symbol.dtype, dims=dims))
    added: onnx.TensorProto = tensors[-1]
    return added


def _write_data(
    file: pef.PefFile, model: onnx.ModelProto, symbols: Sequence[Symbol], target: Path
) -> None:
    """Write the content of `symbols` to `target`, and initializers that say where it lies."""
    with replacing(target) as temporary, temporary.open("wb") as out:
        for symbol in symbols:
            if symbol.data is None:
                continue
            offset = out.seek(-(-out.tell() // _ALIGNMENT) * _ALIGNMENT)
            out.write(file.bytes(symbol.data))
            tensor = _header(model, symbol)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            place = {"location": target.name, "offset": offset, "length": symbol.data.size}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
