"""What is said of a compilation: in the program how it was made, in the log what became of it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from operator import index
from pathlib import Path
from typing import Any

from pef.files import write_text
from pef.program import Producer
from pef.report import Report, render
from sambac.errors import CompileError
from sambac.facts import LayerNumbers, Record
from sambac.frontend import Source
from sambac.option import Scope, options_of
from sambac.options import CompileOptions

_LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "networkx")


def producer(
    source: Source,
    options: CompileOptions,
    record: Record,
    trained: Mapping[str, CompileOptions] | None = None,
) -> Producer:
    """Return the record of a compilation of `source`; it names no folder and no time.

    `record` says what became of the options; `trained` are those of models among several that
    train.
    """
    inference = {Scope.PROGRAM, Scope.MODEL}
    facts = _recorded(options, {*Scope} if options.train else inference)
    if trained:
        facts["trained"] = {name: _recorded(own, {Scope.TRAINING}) for name, own in trained.items()}
    if record.applied:
        facts["applied"] = list(record.applied)
    if record.layers:
        facts["layers"] = [_row(layer) for layer in record.layers]
    if record.choices:
        facts["formulations"] = [asdict(choice) for choice in record.choices]
    return Producer(
        tool="sambac",
        version=_version("sambaflow"),
        options=json.dumps(facts, sort_keys=True, default=_plain),
        source=source.name,
        source_hash=source.sha256,
        libraries=tuple((name, _version(name)) for name in _LIBRARIES),
    )


def _row(layer: LayerNumbers) -> dict[str, object]:
    """Return a layer as plain data; errors and shares have three digits."""
    return {
        name: float(f"{value:.3g}") if isinstance(value, float) else value
        for name, value in asdict(layer).items()
    }


def _plain(number: Any) -> int | float:
    """Return a number of numpy or of torch, which options may be, as Python's."""
    try:
        return index(number)
    except TypeError:
        return float(number)


@cache
def _version(name: str) -> str:
    """Return the version of an installed package, which is looked up on disk once."""
    return version(name)


def _recorded(options: CompileOptions, scopes: Collection[Scope]) -> dict[str, object]:
    """Return the options of `scopes` as plain data, without anything that names a folder."""
    return {
        name: each.record(value)
        for name, each in options_of(options).items()
        if each.scope in scopes and ((value := getattr(options, name)) or not each.brief)
    }


def log_path(pef_path: str | os.PathLike[str]) -> Path:
    """Return where the log of a PEF lies: beside it, with `.log` appended to its name."""
    path = Path(pef_path)
    return path.with_name(path.name + ".log")


def write_log(report: Report, pef_path: str | os.PathLike[str]) -> Path:
    """Write the log beside the PEF, whole or not at all, and return its path.

    Raises `CompileError` when it cannot be written; a log of an earlier compilation is then
    removed, as it would speak of another program.
    """
    path = log_path(pef_path)
    text = "\n".join(render(report)) + "\n"
    try:
        write_text(path, text)
    except OSError as error:
        with suppress(OSError):  # a folder is no log of another program
            path.unlink(missing_ok=True)
        raise CompileError(
            f"{pef_path} was written, but its log {path} was not: {error.strerror}."
        ) from error
    return path
