"""What a program says of how it was made: the model, the options and the versions at work."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from operator import index
from typing import Any

from pef.program import Producer
from sambac.frontend import Source
from sambac.option import Scope, options_of
from sambac.options import CompileOptions

_LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "networkx")


def producer(
    source: Source,
    options: CompileOptions,
    trained: Mapping[str, CompileOptions] | None = None,
    applied: Sequence[str] = (),
) -> Producer:
    """Return the record of a compilation of `source`; it names no folder and no time.

    `trained` are the options of those of several models that train, and `applied` says what was
    done to the numbers of operators, if anything was.
    """
    inference = {Scope.PROGRAM, Scope.MODEL}
    facts = _recorded(options, {*Scope} if options.train else inference)
    if trained:
        facts["trained"] = {name: _recorded(own, {Scope.TRAINING}) for name, own in trained.items()}
    if applied:
        facts["applied"] = list(applied)
    return Producer(
        tool="sambac",
        version=_version("sambaflow"),
        options=json.dumps(facts, sort_keys=True, default=_plain),
        source=source.name,
        source_hash=source.sha256,
        libraries=tuple((name, _version(name)) for name in _LIBRARIES),
    )


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
