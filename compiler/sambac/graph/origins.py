"""Which of the model's tensors a derived weight was computed from.

The passes note it on the weight they make and the executable carries it, so that a weight that no
model has can be traced to the names that its author knows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import onnx_ir as ir

_KEY = "origin"


def note_origins(value: ir.Value, sources: Iterable[ir.Value]) -> None:
    """Note on `value`, an initializer made by a pass, that it was computed from `sources`.

    Sources that are derived themselves stand for what they were computed from; without any source
    the value is the compiler's own.
    """
    names = dict.fromkeys(name for source in sources for name in origins(source))
    value.metadata_props[_KEY] = json.dumps(list(names))


def origins(value: ir.Value) -> tuple[str, ...]:
    """Return the model's tensors behind a constant: of one that the model names, itself."""
    if _KEY in value.metadata_props:
        return noted_origins(value)
    return (value.name,) if value.name and value.is_initializer() else ()


def noted_origins(value: ir.Value) -> tuple[str, ...]:
    """Return what a derived value was computed from, in the order noted; () for all others."""
    return tuple(str(name) for name in json.loads(value.metadata_props.get(_KEY, "[]")))
