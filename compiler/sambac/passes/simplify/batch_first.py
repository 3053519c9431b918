"""Examples before tokens, where a module turns them over for attention and back again.

With S an exchange of the first two axes, R a Reshape that tells heads apart, all of known sizes,

    S(f(S(x)))                       ->  f(x)
    S(R(f(S(x)) : [L, B * H, D]))    ->  R'(T(R''(f(x) : [B, L, H, D])) : [B, H, L, D])
    S(f(R(S(m : [B * H, L, D]))))    ->  f(R''(T(R'(m))))

f is what treats all tokens alike: products with a matrix, a vector added, a Split of their numbers.
Such are the layers of `torch.nn.MultiheadAttention`, which puts tokens first, and heads beside
examples. Of one example or one token, S moves nothing, and there is always an x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, graph_of, int_attribute, static_shape
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, made_by

from .merge_chains import permutation

_EXCHANGE, _TURNED = (1, 0, 2), (1, 2, 0)
_HEADS, _TURNED_HEADS = (0, 2, 1, 3), (0, 2, 3, 1)
_TOKENS_FIRST = (2, 0, 1, 3)
_DEEPEST = 8
"""Operators between the two exchanges; between those of one attention there are four."""

Make: TypeAlias = Callable[[Editor], ir.Value]


def exchange_back(editor: Editor, node: ir.Node) -> str | None:
    """S(f(S(x))) -> f(x)."""
    shape = static_shape(node.inputs[0])
    if shape is None or len(shape) != 3 or permutation(node) != _EXCHANGE or 1 in shape[:2]:
        return "it does not exchange the first two of three axes"
    make = _Rows(*shape[:2], graph_of(node)).undone(node.inputs[0])
    if make is None:
        return "what it turns over was not turned over before"
    return editor.bypass(node, make(editor))


def heads_of_tokens(editor: Editor, node: ir.Node) -> str | None:
    """S(R(f(S(x)))) -> R'(T(R''(f(x))))."""
    told = made_by(node.inputs[0], "Reshape")
    order, tokens = permutation(node), None if told is None else told.inputs[0]
    shape, apart = static_shape(tokens), static_shape(node.inputs[0])
    if shape is None or apart is None or not len(shape) == len(apart) == 3 or 0 in shape:
        return "it does not turn over heads of tokens"
    length, batch, width = shape
    if order not in (_EXCHANGE, _TURNED) or apart[0] != length or apart[1] % batch:
        return "it does not turn over heads of tokens"
    make = _Rows(length, batch, graph_of(node)).undone(tokens)
    if make is None:
        return "what it turns over was not turned over before"
    heads = apart[1] // batch
    x = editor.op("Reshape", make(editor), [batch, length, heads, width // heads])
    turned = editor.op("Transpose", x, perm=_HEADS if order == _EXCHANGE else _TURNED_HEADS)
    editor.replace(node, "Reshape", turned, [*(static_shape(node.outputs[0]) or ())])
    return None


@dataclass(frozen=True)
class _Rows:
    """Rows of tokens: of `length` tokens of `batch` examples, the examples of a token in a row.

    What is calculated outside of `graph`, the body of a loop, stays there: it is made once.
    """

    length: int
    batch: int
    graph: ir.Graph

    def undone(self, value: ir.Value | None, depth: int = _DEEPEST) -> Make | None:
        """Return what makes `value`, [L, B, E] or [L * B, E], with examples before tokens."""
        shape, node = static_shape(value), None if value is None else value.producer()
        if value is None or shape is None or shape[:-1] not in self._leading or not depth:
            return None
        if 1 in (self.length, self.batch):
            return lambda editor: editor.op("Reshape", value, self._after(shape))
        rule = _RULES.get(node.op_type) if node is not None and not node.domain else None
        return None if rule is None or node is None else rule(self, node, value, depth - 1)

    @property
    def _leading(self) -> tuple[tuple[int, ...], ...]:
        return (self.length, self.batch), (self.length * self.batch,)

    def _after(self, shape: tuple[int, ...]) -> list[int]:
        """Return the shape of rows of `shape` once examples come first."""
        return [*((self.batch, self.length) if len(shape) > 2 else shape[:1]), shape[-1]]

    def exchange(self, node: ir.Node, value: ir.Value, depth: int) -> Make | None:
        """S(x): x."""
        del value, depth
        x = node.inputs[0]
        return (lambda editor: x) if x is not None and permutation(node) == _EXCHANGE else None

    def reshape(self, node: ir.Node, value: ir.Value, depth: int) -> Make | None:
        """Rows as a matrix or not; the heads of attention beside each other."""
        source, shape = node.inputs[0], static_shape(value) or ()
        before = static_shape(source)
        if source is None or before is None or not has_one_reader(source):
            return None
        if before[:-1] in self._leading and before[-1] == shape[-1]:
            inner = self.undone(source, depth)
            if inner is None:
                return None
            return lambda editor: editor.op("Reshape", inner(editor), self._after(shape))
        return self._mixed(source, shape)

    def _mixed(self, told: ir.Value, shape: tuple[int, ...]) -> Make | None:
        """Return what makes rows of `shape` of the heads that `told` has one beside another."""
        turn = made_by(told, "Transpose")
        apart = static_shape(None if turn is None else turn.inputs[0])
        if turn is None or turn.inputs[0] is None or apart is None:
            return None
        mixed, order = turn.inputs[0], permutation(turn)
        heads = shape[-1] // apart[-1] if apart[-1] else 0
        spread = (self.batch, heads, self.length, apart[-1])
        merged = (self.batch * heads, self.length, apart[-1])
        if (order, apart) not in ((_EXCHANGE, merged), (_TOKENS_FIRST, spread)):
            return None
        if heads * apart[-1] != shape[-1]:
            return None

        def make(editor: Editor) -> ir.Value:
            x = mixed if apart == spread else editor.op("Reshape", mixed, [*spread])
            tokens = editor.op("Transpose", x, perm=_HEADS)
            return editor.op("Reshape", tokens, self._after(shape))

        return make

    def alike(self, node: ir.Node, value: ir.Value, depth: int) -> Make | None:
        """f(x, ..): the same operator, which treats the rows of one input alike."""
        flags, inputs = attributes_of(node), [*node.inputs]
        if flags.get("transA") or _is_of_rows(node, value) or node.graph is not self.graph:
            return None
        at = int(node.op_type in _EITHER and _has_more_axes(inputs[-1], 1))
        more = inputs[:at] + inputs[at + 1 :]
        if any(map(_has_more_axes, more, _RANKS[node.op_type])) or not _is_read_once(node):
            return None
        inner = self.undone(inputs[at], depth)
        if inner is None:
            return None

        def make(editor: Editor) -> ir.Value:
            operands = [*inputs[:at], inner(editor), *inputs[at + 1 :]]
            made = editor.ops(node.op_type, *operands, outputs=len(node.outputs), **flags)
            return made[node.outputs.index(value)]

        return make


_RANKS: Mapping[str, tuple[int, ...]] = {
    "Add": (1,),
    "Gemm": (2, 1),
    "MatMul": (2,),
    "Mul": (1,),
    "Split": (1,),
}
"""The most axes of what an operator reads beside rows, that it may treat them alike."""
_EITHER = ("Add", "Mul")
"""Operators that read the rows first or last."""
_RULES: Mapping[str, Callable[[_Rows, ir.Node, ir.Value, int], Make | None]] = {
    **dict.fromkeys(_RANKS, _Rows.alike),
    "Reshape": _Rows.reshape,
    "Transpose": _Rows.exchange,
}


def _is_of_rows(node: ir.Node, value: ir.Value) -> bool:
    """Tell whether `node` splits rows instead of their numbers."""
    last = len(value.shape or ()) - 1
    return node.op_type == "Split" and int_attribute(node, "axis", 0) not in (-1, last)


def _has_more_axes(value: ir.Value | None, most: int) -> bool:
    return value is not None and (value.shape is None or len(value.shape) > most)


def _is_read_once(node: ir.Node) -> bool:
    """Tell whether one operator at most reads each of its results, so that none is made twice."""
    return all(has_one_reader(value) or not value.uses() for value in node.outputs)


@dataclass(frozen=True)
class BatchFirst(RulePass):
    """Leave examples before tokens."""

    name: ClassVar[str] = "batch_first"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Transpose": (exchange_back, heads_of_tokens)
    }
