"""Channel shuffles as one Gather.

With an axis of g * c elements,

    Reshape(Transpose(Reshape(x, [.., g, c, ..]), swap g and c), [.., g * c, ..])
        ->  Gather(x, indices, axis),   indices[j * g + i] = i * c + j

if the shapes are known, nothing else reads what is between, and at least 16 numbers lie behind
each index, so that they are copied in one piece. onnxruntime moves the same bytes either way;
the two Reshapes, each an operator of its own in a blocked layout, are what is saved: 0.97 of
ShuffleNet's time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape

from .rewriting import Rule, RulePass, has_one_reader, made_by

_MIN_RUN = 16


def gather_shuffle(editor: Editor, node: ir.Node) -> str | None:
    """Reshape(Transpose(Reshape(x))) -> Gather(x)."""
    transpose = made_by(node.inputs[0], "Transpose")
    split = made_by(transpose.inputs[0], "Reshape") if transpose is not None else None
    if transpose is None or split is None:
        return "it does not end a shuffle"
    if not (has_one_reader(transpose.outputs[0]) and has_one_reader(split.outputs[0])):
        return "something else reads what is between"
    x = split.inputs[0]
    before, middle = static_shape(x), static_shape(split.outputs[0])
    if x is None or before is None or middle is None or before != static_shape(node.outputs[0]):
        return "the shape changes or is unknown"
    axis = _swapped_axis(transpose)
    if axis is None or (*middle[:axis], math.prod(middle[axis : axis + 2])) != before[: axis + 1]:
        return "it does not swap the two parts of one axis"
    if middle[axis + 2 :] != before[axis + 1 :] or math.prod(before[axis + 1 :]) < _MIN_RUN:
        return "the pieces are short"
    groups, members = middle[axis : axis + 2]
    order = np.arange(groups * members, dtype=np.int64).reshape(groups, members).T.reshape(-1)
    indices = editor.initializer(order, f"{node.outputs[0].name}_order")
    editor.replace(node, "Gather", x, indices, axis=axis)
    return None


def _swapped_axis(transpose: ir.Node) -> int | None:
    """Return the axis that trades places with the next one, if no other axis moves."""
    attribute = transpose.attributes.get("perm")
    perm = list(attribute.as_ints()) if attribute is not None else []
    moved = [axis for axis, source in enumerate(perm) if axis != source]
    return moved[0] if len(moved) == 2 and moved[1] == moved[0] + 1 else None


@dataclass(frozen=True)
class GatherShuffles(RulePass):
    """Rewrite channel shuffles of three operators to one."""

    name: ClassVar[str] = "gather_shuffles"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Transpose"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Reshape": (gather_shuffle,)}
