"""Operators of onnxruntime's own, as providers read them that have not all of them.

    FusedMatMul(A, B, transBatchA=1)  ->  FusedMatMul(Transpose(A, [1, 2, 0, 3]), B)      B likewise

OpenVINO's reads A as it is, without a word, and so gives wrong numbers. Others lack

    RotaryEmbedding(X, positions, c, s)
        ->  Concat(A * c' - B * s', A * s' + B * c'),    A, B the halves of X,
                                                         c', s' the rows of c, s for its places

with one first position for all examples, with interleaved = 1 the same of neighbours, and of tokens
[B, S, H * E] with num_heads = H the same of their heads. Operands of another rank than compilers
write are left to the processor: onnxruntime refuses the Transpose, or what is joined to the
positions.

    Attention(Q, K, V, mask)
        ->  Transpose(MatMul(P, V')),    P = Softmax(MatMul(Q', Transpose(K')) * scale + mask)

of tokens [B, S, H * E] with a scale, where ', as Reshape and Transpose, has heads in front, those
of keys and values repeated for queries that share them. Behind a mask, P is 0 where a query sees
no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .wire_nodes import (
    Node,
    float_attribute,
    number_attribute,
    numbers_attribute,
    renamed,
    rewritten,
)

_FLAGS = ("transBatchA", "transBatchB")
_PERM = (1, 2, 0, 3)
_MICROSOFT, _ROTARY, _ATTENTION = "com.microsoft", "RotaryEmbedding", "Attention"
_PLACES, _LAST = 2, 3
_HEADS, _TURNED_HEADS = (0, 2, 1, 3), (0, 2, 3, 1)
_CAUSAL = "is_causal"
_ALONG_LAST = number_attribute("axis", _LAST)
_FLOAT, _LARGEST = 1, (2 - 2**-23) * 2.0**127
_END = (1 << 31) - 1
_END_OF_PLACES = number_attribute("end", _LAST)


def plainer(model: bytes) -> Iterator[bytes]:
    """Yield a serialised ModelProto in operators that more and more providers have.

    Raises `PefError` where it is malformed.
    """
    if any(flag.encode() in model for flag in _FLAGS):
        model = rewritten(model, _plain_product)
    yield model
    if _ATTENTION.encode() in model:
        model = rewritten(model, _plain_attention)
        yield model
    if _ROTARY.encode() in model:
        yield rewritten(model, _plain_rotary)


def _plain_product(node: Node) -> Sequence[Node]:
    turned = [at for at, flag in enumerate(_FLAGS) if node.flags.get(flag)]
    inputs, made = list(node.inputs), list[Node]()
    for at in turned:
        result = f"{node.outputs[0]} operand {at}"
        perm = numbers_attribute("perm", _PERM)
        made.append(Node("Transpose", (inputs[at],), (result,), node.name, attributes=perm))
        inputs[at] = result
    left = {name: raw for name, raw in node.attributes.items() if name not in _FLAGS}
    return [*made, replace(node, inputs=tuple(inputs), attributes=left)]


def _plain_attention(node: Node) -> Sequence[Node]:
    known = {"q_num_heads", "kv_num_heads", "scale"}
    if (node.domain, node.op_type) != ("", _ATTENTION) or {*node.attributes} - {_CAUSAL} != known:
        return [node]
    if len(node.inputs) not in (3, 4) or len(node.outputs) != 1 or not all(node.inputs):
        return [node]
    (query, key, value), mask = node.inputs[:3], node.inputs[3:]
    count, groups = node.flags["q_num_heads"], node.flags["kv_num_heads"]
    parts = _Spelling(node)
    scale = parts.op("Constant", value_float=renamed(node.attributes["scale"], "value_float"))
    scores = parts.op(
        "MatMul",
        parts.heads(query, count, _HEADS),
        parts.heads(key, groups, _TURNED_HEADS, count // groups),
    )
    scores = parts.op("Mul", scores, scale)
    if node.flags.get(_CAUSAL):
        scores = parts.backwards(scores)
    for each in mask:
        scores = parts.op("Add", scores, each)
    shares = parts.shares(scores) if mask else parts.op("Softmax", scores, **_ALONG_LAST)
    mixed = parts.op("MatMul", shares, parts.heads(value, groups, _HEADS, count // groups))
    return parts.tokens(mixed)


def _plain_rotary(node: Node) -> Sequence[Node]:
    known = ("interleaved", "num_heads")
    more = any(node.flags.get(name, 1) for name in node.attributes if name not in known)
    if (node.domain, node.op_type) != (_MICROSOFT, _ROTARY) or more:
        return [node]
    x, positions, *tables = node.inputs
    parts, heads = _Spelling(node), node.flags.get("num_heads", 0)
    if heads:
        x = parts.heads(x, heads, _HEADS)
    else:
        x = parts.op("Transpose", x, **numbers_attribute("perm", range(_LAST + 1)))  # of four axes
    places = parts.op("Shape", x, **number_attribute("start", _PLACES), **_END_OF_PLACES)
    both = parts.op("Concat", positions, places, **number_attribute("axis", 0))  # of one axis
    until = parts.op("ReduceSum", both)
    cosines, sines = (parts.slice(each, positions, until, 0) for each in tables)
    turn = _neighbours if node.flags.get("interleaved") else _halves
    turned = turn(parts, x, cosines, sines)
    return parts.tokens(turned) if heads else parts.last("Identity", turned)


def _halves(parts: _Spelling, x: str, cosines: str, sines: str) -> str:
    size = parts.op("Shape", cosines, **number_attribute("start", 1))
    first = parts.slice(x, parts.whole(0), size, _LAST)
    second = parts.slice(x, size, parts.whole(_END), _LAST)
    turned = parts.turned(first, second, cosines, sines)
    return parts.op("Concat", *turned, **number_attribute("axis", _LAST))


def _neighbours(parts: _Spelling, x: str, cosines: str, sines: str) -> str:
    end, two, behind = (parts.whole(number) for number in (_END, 2, _LAST + 1))
    first, second = (parts.slice(x, parts.whole(begin), end, _LAST, two) for begin in (0, 1))
    turned = parts.turned(first, second, cosines, sines)
    pairs = (parts.op("Unsqueeze", each, behind) for each in turned)
    joined = parts.op("Concat", *pairs, **number_attribute("axis", _LAST + 1))
    return parts.op("Reshape", joined, parts.op("Shape", x))


class _Spelling:
    """What comes to stand for a node, whose result names the values between."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._made: list[Node] = []

    def op(self, op_type: str, *inputs: str, **attributes: bytes) -> str:
        """Add an operator, and return the name of its result."""
        result = f"{self._node.outputs[0]} part {len(self._made)}"
        self._add(op_type, inputs, result, attributes)
        return result

    def last(self, op_type: str, *inputs: str, **attributes: bytes) -> list[Node]:
        """Return all operators, with one behind them that gives the result of the node."""
        self._add(op_type, inputs, self._node.outputs[0], attributes)
        return self._made

    def whole(self, *numbers: int) -> str:
        """Return a vector of whole numbers that are not negative."""
        return self.op("Constant", **numbers_attribute("value_ints", numbers))

    def backwards(self, scores: str) -> str:
        """Return scores with the lowest ones for keys behind the query."""
        zeros = self.op("ConstantOfShape", self.op("Shape", scores))
        ones = self.op("Cos", zeros)
        hidden = self.op("Sub", self.op("Trilu", ones, **number_attribute("upper", 0)), ones)
        largest = self.op("Constant", **float_attribute("value", _LARGEST))
        return self.op("Add", scores, self.op("Mul", hidden, largest))

    def shares(self, scores: str) -> str:
        """Return the softmax of scores along the last axis, zeros for a row of -inf."""
        lowest = self.op("Constant", **float_attribute("value", -_LARGEST))
        finite = self.op("Softmax", self.op("Max", scores, lowest), **_ALONG_LAST)
        most = self.op("ReduceMax", scores, self.whole(_LAST))
        seen = self.op("Cast", self.op("Greater", most, lowest), **number_attribute("to", _FLOAT))
        return self.op("Mul", finite, seen)

    def heads(self, tokens: str, count: int, order: Sequence[int], times: int = 1) -> str:
        """Return the heads of tokens [B, S, count * E], each so many times, in this order of axes.

        Those of [B, S, heads, E] are ordered.
        """
        heads = self.op("Reshape", tokens, self._heads(count))
        if times > 1:
            axis = number_attribute("axis", _LAST)
            one = self.op("Unsqueeze", heads, self.whole(_LAST))
            heads = self.op(
                "Reshape", self.op("Concat", *[one] * times, **axis), self._heads(count * times)
            )
        return self.op("Transpose", heads, **numbers_attribute("perm", order))

    def tokens(self, heads: str) -> list[Node]:
        """Return all operators, with those behind them that make tokens [B, S, H * E] of heads."""
        turned = self.op("Transpose", heads, **numbers_attribute("perm", _HEADS))
        return self.last("Reshape", turned, self._rest(self.whole(0, 0)))

    def _heads(self, count: int) -> str:
        return self._rest(self.whole(0, 0, count))

    def _rest(self, sizes: str) -> str:
        """Return `sizes` with what is left for the last one."""
        rest = self.op("Neg", self.whole(1))
        return self.op("Concat", sizes, rest, **number_attribute("axis", 0))

    def slice(self, x: str, begin: str, end: str, axis: int, *step: str) -> str:
        """Return a piece of `x` along `axis`."""
        return self.op("Slice", x, begin, end, self.whole(axis), *step)

    def turned(self, first: str, second: str, cosines: str, sines: str) -> tuple[str, str]:
        """Return both numbers of pairs, turned by their angles."""
        one, two = (
            [self.op("Mul", each, angle) for angle in (cosines, sines)] for each in (first, second)
        )
        return self.op("Sub", one[0], two[1]), self.op("Add", one[1], two[0])

    def _add(
        self, op_type: str, inputs: tuple[str, ...], result: str, attributes: Mapping[str, bytes]
    ) -> None:
        made = Node(op_type, inputs, (result,), self._node.name, attributes=attributes)
        self._made.append(made)
