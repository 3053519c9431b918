"""Casts to the type of another value, where that type is known.

    CastLike(x, like)  ->  Cast(x, to=type of like)

The result no longer depends on `like`, and a constant is cast at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor

from .rewriting import Rule, RulePass


def _name_type(editor: Editor, node: ir.Node) -> str | None:
    """CastLike(x, like) -> Cast(x, to=type of like)."""
    like = node.inputs[1]
    if like is None or like.dtype is None:
        return "the type is not known"
    kept = ("saturate", "round_mode")
    attributes = {k: attr.value for k, attr in node.attributes.items() if k in kept}
    editor.replace(node, "Cast", node.inputs[0], to=int(like.dtype), **attributes)
    return None


@dataclass(frozen=True)
class NameCasts(RulePass):
    """Replace every CastLike by a Cast."""

    name: ClassVar[str] = "name_casts"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"CastLike": (_name_type,)}
