"""Branches that are always taken.

    If(true, then, else)   ->  the operators of `then`, in the graph that holds the If
    If(false, then, else)  ->  the operators of `else`

for a condition that is a constant of one element. Exporters write such an If around what depends
on a rank or a flag; as operators of the graph itself, its branch can be planned and folded.
Names are unique across all graphs of the model, so nothing has to be renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import graph_of, redirect

from .rewriting import Rule, RulePass, constant


def inline_branch(editor: Editor, node: ir.Node) -> str | None:
    """If(constant, then, else) -> the operators of the branch taken."""
    condition = constant(node.inputs[0])
    if condition is None or condition.size != 1:
        return "the condition is no constant"
    taken = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    branch = node.attributes[taken].as_graph()
    results = list(branch.outputs)
    branch.outputs.clear()
    moved = _move(branch, node)
    for out, result in zip(node.outputs, results, strict=True):
        if redirect(out, result) is not None:
            out.replace_all_uses_with(_copy(editor, out, result), replace_graph_outputs=True)
    editor.remove(node)
    for inner in moved:
        if inner.domain == "" and inner.op_type == "If":
            editor.rewrite(inner)
            inline_branch(editor, inner)
    return None


def _move(branch: ir.Graph, node: ir.Node) -> list[ir.Node]:
    """Move everything in `branch` to where `node` is; return its operators."""
    home = graph_of(node)
    for name in list(branch.initializers):
        home.register_initializer(branch.initializers.pop(name))
    moved = list(branch)
    branch.remove(moved)
    home.insert_before(node, moved)
    return moved


def _copy(editor: Editor, out: ir.Value, result: ir.Value) -> ir.Value:
    """Compute `result` once more under the name of `out`, which is an output of a graph."""
    copied = editor.op("Identity", result, like=result)
    copied.name, out.name = out.name, None
    return copied


@dataclass(frozen=True)
class InlineBranches(RulePass):
    """Replace every If whose condition is a constant by the branch it takes."""

    name: ClassVar[str] = "inline_branches"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"If": (inline_branch,)}
