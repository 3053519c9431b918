"""How arguments and results are nested, in the files of torch.export.

What is no collection of Python's own stands there by the name of its class, which only the library
that it comes from can make: `transformers` for what its models return. A program needs no more of
it than what its fields are called, so it is read as a dict, and so it is wherever the library is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils import _pytree as pytree

from sambac.frontend.torch.programs.names import field_names

_PYTHON = ("builtins.", "collections.", "torch.")
"""Where the types come from that PyTorch itself can read."""


def read_structure(text: str) -> pytree.TreeSpec:
    """Return what `text` describes, as torch's `treespec_loads`, of Python's collections alone."""
    protocol, tree = json.loads(text)
    return _loads(json.dumps([protocol, _of_python(tree)]))


_loads = pytree.treespec_loads


def _of_python(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return `node` with dicts, or tuples where parts have no names, for types of others."""
    parts: Sequence[Mapping[str, Any]] = node["children_spec"]
    changed = {**node, "children_spec": [_of_python(part) for part in parts]}
    if node["type"] is None or str(node["type"]).startswith(_PYTHON):
        return changed
    names = field_names(json.loads(node["context"]), len(parts))
    if names is None:
        return {**changed, "type": "builtins.tuple", "context": "null"}
    return {**changed, "type": "builtins.dict", "context": json.dumps(names)}
