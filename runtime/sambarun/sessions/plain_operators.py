"""Operators of onnxruntime's own, as providers read them that have not all of them.

    FusedMatMul(A, B, transBatchA=1)  ->  FusedMatMul(Transpose(A, [1, 2, 0, 3]), B)      B likewise

OpenVINO's reads A as it is, without a word, and so gives wrong numbers. Others lack

    RotaryEmbedding(X, positions, c, s)
        ->  Concat(A * c' - B * s', A * s' + B * c'),    A, B the halves of X,
                                                         c', s' the rows of c, s for its places

with one first position for all examples, and with interleaved = 1 the same of neighbours. Operands
of another rank than compilers write are left to the processor: onnxruntime refuses the Transpose,
or what is joined to the positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .wire_nodes import Node, number_attribute, numbers_attribute, rewritten

_FLAGS = ("transBatchA", "transBatchB")
_PERM = (1, 2, 0, 3)
_MICROSOFT, _ROTARY = "com.microsoft", "RotaryEmbedding"
_PLACES, _LAST = 2, 3
_END = (1 << 31) - 1
_END_OF_PLACES = number_attribute("end", _LAST)


def plainer(model: bytes) -> Iterator[bytes]:
    """Yield a serialised ModelProto in operators that more and more providers have.

    Raises `PefError` where it is malformed.
    """
    if any(flag.encode() in model for flag in _FLAGS):
        model = rewritten(model, _plain_product)
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


def _plain_rotary(node: Node) -> Sequence[Node]:
    more = any(node.flags.get(name, 1) for name in node.attributes if name != "interleaved")
    if (node.domain, node.op_type) != (_MICROSOFT, _ROTARY) or more:
        return [node]
    x, positions, *tables = node.inputs
    parts = _Spelling(node)
    x = parts.op("Transpose", x, **numbers_attribute("perm", range(_LAST + 1)))  # of four axes
    places = parts.op("Shape", x, **number_attribute("start", _PLACES), **_END_OF_PLACES)
    both = parts.op("Concat", positions, places, **number_attribute("axis", 0))  # of one axis
    until = parts.op("ReduceSum", both)
    cosines, sines = (parts.slice(each, positions, until, 0) for each in tables)
    turn = _neighbours if node.flags.get("interleaved") else _halves
    return turn(parts, x, cosines, sines)


def _halves(parts: _Spelling, x: str, cosines: str, sines: str) -> list[Node]:
    size = parts.op("Shape", cosines, **number_attribute("start", 1))
    first = parts.slice(x, parts.whole(0), size, _LAST)
    second = parts.slice(x, size, parts.whole(_END), _LAST)
    turned = parts.turned(first, second, cosines, sines)
    return parts.last("Concat", *turned, **number_attribute("axis", _LAST))


def _neighbours(parts: _Spelling, x: str, cosines: str, sines: str) -> list[Node]:
    end, two, behind = (parts.whole(number) for number in (_END, 2, _LAST + 1))
    first, second = (parts.slice(x, parts.whole(begin), end, _LAST, two) for begin in (0, 1))
    turned = parts.turned(first, second, cosines, sines)
    pairs = (parts.op("Unsqueeze", each, behind) for each in turned)
    joined = parts.op("Concat", *pairs, **number_attribute("axis", _LAST + 1))
    return parts.last("Reshape", joined, parts.op("Shape", x))


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

    def whole(self, number: int) -> str:
        """Return a vector of one whole number."""
        return self.op("Constant", **numbers_attribute("value_ints", (number,)))

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
