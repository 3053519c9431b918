"""The gradients of attention, from the probabilities that the forward operator gives out.

    Y = P V,  P = softmax(C + mask),  C = c tanh(S / c) or S,  S = scale Q K^T

    dV = P^T dY    dP = dY V^T    dC = P (dP - rowsum(P dP))    dS = dC (1 - tanh(S / c)^2) or dC
    dQ = scale dS K               dK = scale dS^T Q             dmask = dC

Masks of every kind, causal ones too, need nothing more: P has them. The row sums are also those of
dY Y, which is taken where it has fewer columns.

In these formulas all are `[batch, heads, length, size]`; inputs may be `[batch, length, heads *
size]`. K and V are those of the cache followed by the new ones, which present_key and present_value
give out. Where several heads of queries share one of keys, their queries count as those of one
head, as many times longer: nothing is repeated, and the products sum over the heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import sqrt

import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import float_attribute, input_at, int_attribute
from sambac.ops.family import InputGradient

from .rules import cut, operand, reshape, swap_last, transpose

_HEADS_FIRST = (0, 2, 1, 3)
_MODE = "qk_matmul_output_mode"
_SCORES, _PROBABILITIES = 0, 3
"""Modes of the output number 3: S, and P; those between are C, with the mask or without."""


def attention(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """Return the makers for Q, K, V, attn_mask, past_key and past_value: see above."""
    at = _Attention(b, node, gradients)
    keys, values = at.keys_matter, at.values_matter
    return (
        at.dq if at.scores_matter else None,
        (lambda: at.fresh(at.dk, 1)) if keys else None,
        (lambda: at.fresh(at.dv, 2)) if values else None,
        at.dmask if at.scores_matter else None,
        (lambda: at.cached(at.dk)) if keys else None,
        (lambda: at.cached(at.dv)) if values else None,
    )[: len(node.inputs)]


class _Attention:
    """One operator on the way back, each part made when it is first asked for.

    Queries and all that has a row for each of them are grouped: `[batch, heads of keys, group *
    length, size]`, where `group` heads of queries share one head of keys.
    """

    def __init__(self, b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]) -> None:
        self._b, self._node = b, node
        self._dy, self._dkeys, self._dvalues, self._dqk = (*gradients, *[None] * 3)[:4]
        self._mode = int_attribute(node, _MODE)
        self._cap = float_attribute(node, "softcap", 0.0)
        past = input_at(node, 4)
        self._past = 0 if past is None else shape_of(past)[2]

    @property
    def scores_matter(self) -> bool:
        """Whether a gradient comes to the scores."""
        return self._dy is not None or self._dqk is not None

    @property
    def keys_matter(self) -> bool:
        """Whether a gradient comes to the keys."""
        return self.scores_matter or self._dkeys is not None

    @property
    def values_matter(self) -> bool:
        """Whether a gradient comes to the values."""
        return self._dy is not None or self._dvalues is not None

    def dq(self) -> ir.Value:
        """Return dQ = scale dS K."""
        query = operand(self._node, 0)
        product = self._ungrouped(self._scaled(self._b.op("MatMul", self._ds, self._k)))
        return _like(self._b, product, query)

    def dmask(self) -> ir.Value:
        """Return dC, which the walker sums over the axes along which the mask is broadcast."""
        return self._ungrouped(self._dc)

    @cached_property
    def dk(self) -> ir.Value:
        """The gradient of all keys: scale dS^T Q, and what comes from present_key."""
        made = []
        if self.scores_matter:
            product = self._b.op("MatMul", swap_last(self._b, self._ds), self._q)
            made.append(self._scaled(product))
        return _sum(self._b, made, self._dkeys)

    @cached_property
    def dv(self) -> ir.Value:
        """The gradient of all values: P^T dY, and what comes from present_value."""
        made = []
        if self._dy is not None:
            made.append(self._b.op("MatMul", swap_last(self._b, self._p), self._rows(self._dy)))
        return _sum(self._b, made, self._dvalues)

    def fresh(self, gradient: ir.Value, index: int) -> ir.Value:
        """Return the part of `gradient` that belongs to what is not from the cache, an input."""
        length = shape_of(gradient)[2]
        part = cut(self._b, gradient, {2: (self._past, length)})
        return _like(self._b, part, operand(self._node, index))

    def cached(self, gradient: ir.Value) -> ir.Value:
        """Return the part of `gradient` that belongs to the cache."""
        return cut(self._b, gradient, {2: (0, self._past)})

    @cached_property
    def _k(self) -> ir.Value:
        return self._whole(1, 4)

    @cached_property
    def _v(self) -> ir.Value:
        return self._whole(2, 5)

    @cached_property
    def _q(self) -> ir.Value:
        return self._rows(operand(self._node, 0))

    @cached_property
    def _p(self) -> ir.Value:
        """The probabilities, of the forward operator or, if it gives out others, of a second."""
        b, node = self._b, self._node
        given = node.outputs[_PROBABILITIES] if len(node.outputs) > _PROBABILITIES else None
        if given is None or not (given.uses() or given.is_graph_output()):
            node.attributes[_MODE] = ir.AttrInt64(_MODE, _PROBABILITIES)
            return self._shaped(b.add_output(node, _PROBABILITIES))
        if self._mode == _PROBABILITIES:
            return self._shaped(given)
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        attributes[_MODE] = _PROBABILITIES
        second = b.ops("Attention", *node.inputs, outputs=_PROBABILITIES + 1, **attributes)
        return self._shaped(second[_PROBABILITIES])

    def _shaped(self, probabilities: ir.Value) -> ir.Value:
        """Return P grouped; shape inference forgets about its cached columns."""
        batch, shared, rows, _ = shape_of(self._q)
        length = shape_of(operand(self._node, 0))[-2]
        columns = shape_of(self._k)[2]
        probabilities.shape = ir.Shape((batch, shared * rows // length, length, columns))
        return self._grouped(probabilities)

    @cached_property
    def _dc(self) -> ir.Value:
        """The gradient of what the softmax is taken of."""
        made = []
        if self._dy is not None or self._mode == _PROBABILITIES:
            made.append(self._through_softmax())
        between = self._mode not in (_SCORES, _PROBABILITIES)
        return _sum(self._b, made, self._given_at(between))

    def _through_softmax(self) -> ir.Value:
        """Return P (dP - rowsum(P dP)), with dP = dY V^T and what comes from the output P."""
        b = self._b
        made = []
        if self._dy is not None:
            made.append(b.op("MatMul", self._rows(self._dy), swap_last(b, self._v)))
        more = self._given_at(self._mode == _PROBABILITIES)
        dp = _sum(b, made, more)
        if more is None and self._dy is not None and shape_of(self._v)[3] < shape_of(self._v)[2]:
            weighed = b.op("Mul", self._rows(self._dy), self._rows(self._node.outputs[0]))
        else:
            weighed = b.op("Mul", self._p, dp)
        sums = b.op("ReduceSum", weighed, [-1], keepdims=1)
        return b.op("Mul", self._p, b.op("Sub", dp, sums))

    @cached_property
    def _ds(self) -> ir.Value:
        """The gradient of the scores: dC (1 - tanh(S / c)^2), and what comes from the output S."""
        b = self._b
        made = []
        if self._dy is not None or self._mode != _SCORES:
            made.append(self._dc)
        if made and self._cap > 0:
            scores = self._scaled(b.op("MatMul", self._q, swap_last(b, self._k)))
            capped = b.op("Tanh", b.op("Mul", scores, 1 / self._cap))
            slope = b.op("Sub", 1.0, b.op("Mul", capped, capped))
            made = [b.op("Mul", made[0], slope)]
        return _sum(b, made, self._given_at(self._mode == _SCORES))

    def _given_at(self, there: bool) -> ir.Value | None:
        """Return the gradient of output number 3 if that is given out `there`."""
        return self._grouped(self._dqk) if there and self._dqk is not None else None

    def _scaled(self, product: ir.Value) -> ir.Value:
        default = 1 / sqrt(shape_of(self._q)[3])
        return self._b.op("Mul", product, float_attribute(self._node, "scale", default))

    def _whole(self, index: int, past: int) -> ir.Value:
        """Return the keys or values: an input, behind the cache if there is one."""
        b, node = self._b, self._node
        value = _heads_first(b, operand(node, index), int_attribute(node, "kv_num_heads"))
        cache = input_at(node, past)
        return value if cache is None else b.op("Concat", cache, value, axis=2)

    def _rows(self, value: ir.Value) -> ir.Value:
        """Return what has the layout of Q or Y, grouped."""
        heads = int_attribute(self._node, "q_num_heads")
        return self._grouped(_heads_first(self._b, value, heads))

    def _grouped(self, value: ir.Value) -> ir.Value:
        batch, heads, length, size = shape_of(value)
        shared = shape_of(self._k)[1]
        return reshape(self._b, value, (batch, shared, heads // shared * length, size))

    def _ungrouped(self, value: ir.Value) -> ir.Value:
        query = operand(self._node, 0)
        *_, length, _ = shape_of(query)
        batch, heads, rows, size = shape_of(value)
        return reshape(self._b, value, (batch, heads * rows // length, length, size))


def _heads_first(b: Editor, value: ir.Value, heads: int) -> ir.Value:
    """Return `[batch, heads, length, size]` from that, or from `[batch, length, heads * size]`."""
    if rank_of(value) == 4:
        return value
    batch, length, width = shape_of(value)
    return transpose(b, reshape(b, value, (batch, length, heads, width // heads)), _HEADS_FIRST)


def _like(b: Editor, value: ir.Value, like: ir.Value) -> ir.Value:
    """Return `[batch, heads, length, size]` in the layout of `like`."""
    return (
        value
        if rank_of(like) == 4
        else reshape(b, transpose(b, value, _HEADS_FIRST), shape_of(like))
    )


def _sum(b: Editor, made: Sequence[ir.Value], more: ir.Value | None) -> ir.Value:
    """Return the sum of the one or two values that there are."""
    terms = [*made, *([] if more is None else [more])]
    return terms[0] if len(terms) == 1 else b.op("Add", *terms)
