"""Several programs in one file, beside data that says what they are for: no code, nothing pickled.

The file is a zip archive of PEFs, not compressed, and of one text in JSON.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pef
from pef.files import replacing
from pef.foreign import reading, why
from pef.program import Program

from .errors import HostError

_SAID = "bundle.json"
_LARGEST_TEXT = 1 << 26
"""Bytes of JSON: more than any honest bundle says, and little enough to read at once."""
_TIME = (1980, 1, 1, 0, 0, 0)
"""Equal bundles are equal files."""


def write_bundle(
    path: str | os.PathLike[str], said: Mapping[str, object], programs: Sequence[Program]
) -> None:
    """Write a file, whole or not at all. Raises `OSError` where nothing can be written."""
    with (
        replacing(path) as target,
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(target, "w") as archive,
    ):
        archive.writestr(zipfile.ZipInfo(_SAID, _TIME), json.dumps(said, sort_keys=True))
        for index, program in enumerate(programs):
            program.save(part := Path(folder) / _name(index))
            with (
                part.open("rb") as source,
                archive.open(zipfile.ZipInfo(_name(index), _TIME), "w", force_zip64=True) as entry,
            ):
                while block := source.read(1 << 20):
                    entry.write(block)


def read_bundle(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Program]]:
    """Return what a bundle says, and its programs, in which all is verified.

    Raises `HostError` for what is no bundle, or a damaged one, `pef.PefError` for programs that are
    damaged or of another version, and `OSError` for what cannot be read.
    """
    shown = os.fspath(path)

    def refused(error: Exception) -> Exception:
        return HostError(f"{shown} is no bundle of programs, or a damaged one: {why(error)}")

    with reading(refused), zipfile.ZipFile(path) as archive:
        size = archive.getinfo(_SAID).file_size
        text = archive.read(_SAID) if size <= _LARGEST_TEXT else b""
        said = json.loads(text)
        count = sum(name.endswith(".pef") for name in archive.namelist())
    if not isinstance(said, dict):
        raise HostError(f"{shown} says nothing of its programs; it is no bundle")
    return said, [_program(shown, index, refused) for index in range(count)]


def _program(path: str, index: int, refused: Any) -> Program:
    """Return a program: its file may go, what is mapped of it stays."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / _name(index)
        with reading(refused), zipfile.ZipFile(path) as archive:
            archive.extract(_name(index), folder)
        return pef.verify(part)


def _name(index: int) -> str:
    return f"{index}.pef"
