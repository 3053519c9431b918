"""What stands between quantised operators works on codes, too.

With D = DequantizeLinear and Q = QuantizeLinear of a scale, and M what only moves or picks:

    Q(D(c))                ->  c                     of the same scale
    M(D(c))                ->  D(M(c))               M = MaxPool, Reshape, Transpose, ...
    D(a) + D(b)            ->  D(QLinearAdd(a, b))   Add, or Sum of two; behind which a Relu alone
                                                     goes into it
    Concat(D(a), D(b), ..) ->  D(QLinearConcat(a, b, ..))

where the scale of the result is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import int_attribute
from sambac.numerics.integers import ByteScale
from sambac.passes.base import Pass
from sambac.passes.rewriting import constant, made_by, present

from .quantize_convolutions import operands, settled

DOMAIN = "com.microsoft"
_PAIR = 2
_SCALED = ("Add", "Concat", "Sum")
_MOVES = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


@dataclass(frozen=True)
class JoinQuantized(Pass):
    """Let operators between quantised ones work on codes; `scales` are those of values by name."""

    name: ClassVar[str] = "join_quantized"
    operators: ClassVar[frozenset[str] | None] = frozenset({"DequantizeLinear"})
    scales: Mapping[str, ByteScale] = field(default_factory=dict, hash=False)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph, in the order in which it runs."""
        editor, modified = Editor(model), False
        for node in tuple(model.graph):
            rule = _RULES.get(node.op_type)
            if rule is not None and node.domain == "" and node.graph is not None:
                editor.rewrite(node)
                modified |= rule(editor, node, self.scales)
        return ir.passes.PassResult(model, modified=modified)


_Scales = Mapping[str, ByteScale]


def scaled(op_type: str) -> bool:
    """Tell whether results of this type need a scale of their own to stay in codes."""
    return op_type in _SCALED


def _undo(editor: Editor, node: ir.Node, scales: _Scales) -> bool:
    """Q(D(c)) -> c."""
    source = made_by(node.inputs[0], "DequantizeLinear")
    if source is None or not _same_scale(source, node) or source.inputs[0] is None:
        return False
    return editor.bypass(node, source.inputs[0]) is None


def _same_scale(source: ir.Node, node: ir.Node) -> bool:
    """Tell whether `node` makes the codes again that `source` reads."""
    codes = source.inputs[0]
    if codes is None or codes.dtype != node.outputs[0].dtype or not _of_number(source):
        return False
    pairs = [
        (constant(a), constant(b)) for a, b in zip(source.inputs[1:], node.inputs[1:], strict=False)
    ]
    same = [a is not None and b is not None and np.array_equal(a, b) for a, b in pairs]
    return len(source.inputs) == len(node.inputs) and all(same)


def _move(editor: Editor, node: ir.Node, scales: _Scales) -> bool:
    """M(D(c)) -> D(M(c))."""
    source = made_by(node.inputs[0], "DequantizeLinear")
    if source is None or len(node.outputs) > 1 or source.inputs[0] is None:
        return False
    codes = source.inputs[0]
    if codes.dtype != ir.DataType.UINT8 or not _of_number(source):
        return False
    moved = editor.op(
        node.op_type,
        codes,
        *node.inputs[1:],
        like=ir.val("", codes.dtype, node.outputs[0].shape),
        **{key: attr.value for key, attr in node.attributes.items()},
    )
    editor.replace(node, "DequantizeLinear", moved, *source.inputs[1:])
    return True


def _of_number(source: ir.Node) -> bool:
    """Tell whether a DequantizeLinear has one scale for all."""
    scale = constant(source.inputs[1])
    return scale is not None and scale.size == 1


def _add(editor: Editor, node: ir.Node, scales: _Scales) -> bool:
    """D(a) + D(b) -> D(QLinearAdd(a, b))."""
    result = settled(node)
    if len(node.inputs) != _PAIR or any(_sizes(v) != _sizes(node.outputs[0]) for v in node.inputs):
        return False  # the kernel for codes is slow where it broadcasts
    return _joined(editor, node, result, scales, _put_addition)


def _sizes(value: ir.Value | None) -> object:
    return None if value is None else value.shape


def _concat(editor: Editor, node: ir.Node, scales: _Scales) -> bool:
    """Concat(D(a), D(b), ..) -> D(QLinearConcat(a, b, ..))."""
    return _joined(editor, node, node.outputs[0], scales, _put_concat)


_Put = Callable[[Editor, ir.Node, list[ir.Node], ByteScale, ir.Value], ir.Value]


def _joined(editor: Editor, node: ir.Node, result: ir.Value, scales: _Scales, put: _Put) -> bool:
    """Put an operator on codes in the place of `node`, if all that it reads are codes."""
    sources = [made_by(value, "DequantizeLinear") for value in node.inputs]
    known = [source for source in sources if source is not None and _of_number(source)]
    scale, last = scales.get(str(result.name)), result.producer()
    if scale is None or last is None or len(known) < len(sources):
        return False
    if any(
        source.inputs[0] is None or source.inputs[0].dtype != ir.DataType.UINT8 for source in known
    ):
        return False
    made = put(editor, node, known, scale, ir.val("", ir.DataType.UINT8, result.shape))
    editor.replace(last, "DequantizeLinear", made, *operands(scale))
    if last is not node:
        editor.remove(node)
    return True


def _put_addition(
    editor: Editor, node: ir.Node, sources: list[ir.Node], scale: ByteScale, like: ir.Value
) -> ir.Value:
    read = [value for source in sources for value in present(source.inputs)]
    return editor.op("QLinearAdd", *read, *operands(scale), domain=DOMAIN, like=like)


def _put_concat(
    editor: Editor, node: ir.Node, sources: list[ir.Node], scale: ByteScale, like: ir.Value
) -> ir.Value:
    read = [value for source in sources for value in present(source.inputs)]
    axis = int_attribute(node, "axis")
    return editor.op("QLinearConcat", *operands(scale), *read, domain=DOMAIN, like=like, axis=axis)


_RULES: Mapping[str, Callable[[Editor, ir.Node, _Scales], bool]] = {
    "QuantizeLinear": _undo,
    **dict.fromkeys(_MOVES, _move),
    **dict.fromkeys(("Add", "Sum"), _add),
    "Concat": _concat,
}
