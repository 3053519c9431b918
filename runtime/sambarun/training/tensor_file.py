"""Writes safetensors files: the same tensors and metadata make the same bytes, in every process.

The format has no checksums: they stand in the metadata, and who reads a file may ask `damaged`.

A file is the length of its header (8 bytes), the header (JSON, padded with spaces to 8 bytes),
and the tensors without gaps. Those of wide elements come first, so that all are aligned; beyond
that they are ordered by name.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from io import BufferedWriter

import numpy as np

from sambarun.arrays import Array

CODES = {
    "BOOL": "bool",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""The names of element types: in the file, and here."""
_SPELLED = {name: code for code, name in CODES.items()}
_ALIGNMENT = 8
CHECKSUMS = "crc32"
"""Where the metadata has the CRC-32 of each tensor, and, by the empty name, of all else in it."""


def write(
    file: BufferedWriter, tensors: Mapping[str, tuple[str, Array]], metadata: Mapping[str, str]
) -> None:
    """Write `tensors`, each with the name of its element type, to `file`.

    Beside `metadata` the file gets the checksums, which take about 0.15 s for 1 GB.

    Raises `OSError` where the file takes no more, and `ValueError` for elements of a type that
    such files do not have.
    """
    odd = sorted({kind for kind, _ in tensors.values()} - _SPELLED.keys())
    if odd:
        raise ValueError(f"safetensors files hold no {', '.join(odd)}")
    order = sorted(tensors, key=lambda name: (-tensors[name][1].dtype.itemsize, name))
    sums = {name: zlib.crc32(_bytes(array)) for name, (_, array) in tensors.items()}
    checked = {**metadata, CHECKSUMS: json.dumps({**sums, "": _of_metadata(metadata)})}
    header: dict[str, object] = {"__metadata__": dict(sorted(checked.items()))}
    end = 0
    for name in order:
        kind, array = tensors[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _SPELLED[kind],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for name in order:
        file.write(_bytes(tensors[name][1]))


def damaged(metadata: Mapping[str, str], tensors: Mapping[str, Array]) -> Iterator[str]:
    """Yield a sentence for each of `tensors`, and for `metadata`, that is not what was written.

    Files of other writers, and of this one before it wrote checksums, say nothing about that.
    Raises `ValueError` where the checksums themselves cannot be read.
    """
    if CHECKSUMS not in metadata:
        return
    known = json.loads(metadata[CHECKSUMS])
    if not isinstance(known, dict):
        raise ValueError(f"its checksums are {known}")  # noqa: TRY004  # damage, no wrong call
    if known.get("") != _of_metadata(metadata):
        yield "Its metadata is not what was written."
    for name, array in tensors.items():
        if known.get(name) != zlib.crc32(_bytes(array)):
            yield f"'{name}' is not what was written: its checksum differs."


def _of_metadata(metadata: Mapping[str, str]) -> int:
    rest = {key: value for key, value in metadata.items() if key != CHECKSUMS}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
