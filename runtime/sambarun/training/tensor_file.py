"""Writes safetensors files: the same tensors and metadata make the same bytes, in every process.

A file is the length of its header (8 bytes), the header (JSON, padded with spaces to 8 bytes),
and the tensors without gaps. Those of wide elements come first, so that all are aligned; beyond
that they are ordered by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def write(
    file: BufferedWriter, tensors: Mapping[str, tuple[str, Array]], metadata: Mapping[str, str]
) -> None:
    """Write `tensors`, each with the name of its element type, to `file`.

    Raises `OSError` where the file takes no more, and `ValueError` for elements of a type that
    such files do not have.
    """
    odd = sorted({kind for kind, _ in tensors.values()} - _SPELLED.keys())
    if odd:
        raise ValueError(f"safetensors files hold no {', '.join(odd)}")
    order = sorted(tensors, key=lambda name: (-tensors[name][1].dtype.itemsize, name))
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
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
        file.write(np.ascontiguousarray(tensors[name][1]).reshape(-1).view(np.uint8).data)
