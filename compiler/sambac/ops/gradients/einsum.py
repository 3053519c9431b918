"""The gradient of Einsum, for every equation that ONNX allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from string import ascii_letters
from typing import Any

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.ops.family import InputGradient

from .rules import dtype_of, incoming, reshape


@dataclass(frozen=True)
class _Equation:
    """Labels of the axes of all operands and of the result, one letter each, no ellipsis."""

    terms: tuple[str, ...]
    result: str


def einsum(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = x_1 x_2 ..., summed over the labels not in y: dx_i = dy times all other x.

    Summed over what is no label of x_i; spread along labels that are of x_i alone; a label that x_i
    repeats is a diagonal, and zeros lie beside it.
    """
    dy = incoming(node, gradients)
    operands = [value for value in node.inputs if value is not None]
    equation = _read(node.attributes["equation"].as_string(), [rank_of(x) for x in operands])

    def maker(index: int) -> InputGradient:
        return lambda: _operand_gradient(b, equation, operands, index, dy)

    return [maker(index) for index in range(len(operands))]


def _operand_gradient(
    b: Editor, equation: _Equation, operands: Sequence[ir.Value], index: int, dy: ir.Value
) -> ir.Value:
    term, x = equation.terms[index], operands[index]
    others = [i for i in range(len(operands)) if i != index]
    terms = [equation.result, *(equation.terms[i] for i in others)]
    labels = "".join(dict.fromkeys(term))
    reached = "".join(label for label in labels if label in "".join(terms))
    factors = [dy, *(operands[i] for i in others)]
    if (terms, reached) == ([reached], reached):
        gradient = dy
    else:
        gradient = b.op("Einsum", *factors, equation=f"{','.join(terms)}->{reached}")
    return _spread(b, gradient, reached, term, x)


def _spread(b: Editor, gradient: ir.Value, labels: str, term: str, like: ir.Value) -> ir.Value:
    """Return `gradient`, whose axes are `labels`, with the axes of `term` and the sizes of `like`.

    Sizes of `like` that are 1 stay what they are in `gradient`: the walker sums over those axes.
    """
    have = dict(zip(labels, shape_of(gradient), strict=True))
    firsts = [label in have and label not in term[:place] for place, label in enumerate(term)]
    apart = [have[label] if first else 1 for label, first in zip(term, firsts, strict=True)]
    gradient = reshape(b, gradient, apart)
    mask = _diagonals(term, shape_of(like))
    if mask is not None:
        return b.op("Mul", gradient, mask.astype(dtype_of(gradient).numpy()))
    wanted = np.broadcast_shapes(tuple(apart), shape_of(like))
    return gradient if wanted == tuple(apart) else b.op("Expand", gradient, wanted)


def _diagonals(term: str, shape: Sequence[int]) -> np.ndarray[Any, np.dtype[Any]] | None:
    """Return where the places of all repeated labels are equal, None if no label is repeated."""
    if len(set(term)) == len(term):
        return None
    places = np.indices(shape)
    mask = np.ones(shape, np.bool_)
    for axis, label in enumerate(term):
        mask &= places[axis] == places[term.index(label)]
    return mask


def _read(text: str, ranks: Sequence[int]) -> _Equation:
    """Return an equation with letters for its ellipses and with the result that it implies."""
    left, arrow, right = text.replace(" ", "").partition("->")
    written = left.split(",")
    hidden = max(rank - _letters(term) for term, rank in zip(written, ranks, strict=True))
    fresh = "".join(letter for letter in ascii_letters if letter not in text)[:hidden]
    terms = tuple(
        term.replace("...", fresh[len(fresh) - (rank - _letters(term)) :])
        for term, rank in zip(written, ranks, strict=True)
    )
    if arrow:
        return _Equation(terms, right.replace("...", fresh))
    counts = Counter(chain.from_iterable(terms))
    once = sorted(label for label, count in counts.items() if count == 1 and label not in fresh)
    return _Equation(terms, fresh + "".join(once))


def _letters(term: str) -> int:
    """Count the labels of a term that are written out."""
    return len(term.replace("...", ""))
