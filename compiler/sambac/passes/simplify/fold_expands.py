"""An Expand that elementwise operators do themselves.

    f(x, Expand(y, sizes))  ->  f(x, y)      where x already has each size that y is expanded to

for operators that broadcast, as in `x / norm.expand_as(x)`. The copy is written and read once less:
it takes longer than what reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.size_sums import ONE, SizeSums, Sum
from sambac.passes.rewriting import Rule, RulePass, made_beside, made_by, present

_FIRST_TO_BROADCAST = 8
_BROADCASTING = (
    *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater"),
    *("GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow"),
    *("Sub", "Sum", "Where", "Xor"),
)


def fold_expand(editor: Editor, node: ir.Node) -> str | None:
    """f(x, Expand(y, sizes)) -> f(x, y)."""
    if editor.opset < _FIRST_TO_BROADCAST:
        return "not all operators broadcast in the opset"
    folded = 0
    for index, value in enumerate(node.inputs):
        expand = made_by(value, "Expand")
        if value is None or expand is None or not made_beside(value, node):
            continue
        source = expand.inputs[0]
        others = [other for at, other in enumerate(node.inputs) if at != index]
        if source is not None and _is_enough(value, source, present(others)):
            node.replace_input_with(index, source)
            folded += 1
    return None if folded else "no other operand has the sizes of an Expand"


def _is_enough(expanded: ir.Value, source: ir.Value, others: Sequence[ir.Value]) -> bool:
    """Tell whether `source` and `others` give the sizes of `expanded` without it."""
    if expanded.shape is None or source.shape is None:
        return False
    sums, rank = SizeSums(expanded.graph), len(expanded.shape)
    if all(value.shape is None or len(value.shape) < rank for value in (source, *others)):
        return False  # sizes of 1 in front, which would be no axes any more
    for behind in range(1, rank + 1):  # from the last axis on, as axes are aligned
        size = _size(sums, expanded, behind)
        if size is None or all(_size(sums, value, behind) != size for value in (source, *others)):
            return False
    return True


def _size(sums: SizeSums, value: ir.Value, behind: int) -> Sum | None:
    """Return the size of the axis so far from the end, 1 where there is none."""
    if value.shape is None:
        return None
    rank = len(value.shape)
    return ONE if behind > rank else sums.size(value, rank - behind)


@dataclass(frozen=True)
class FoldExpands(RulePass):
    """Let elementwise operators broadcast what is expanded for them."""

    name: ClassVar[str] = "fold_expands"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Expand"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(_BROADCASTING, (fold_expand,))
