"""Sums of products in which a letter has one size.

    Einsum("Bij", x)  ->  Einsum("Bij->Bij", x)
    Einsum("ij,jk->ik", x [2, 1], y [3, 4])  ->  Einsum("i,jk->ik", Reshape(x), y)
    Einsum("...i,...i->", x [2, 3], y [2, 3])  ->  Einsum("ai,ai->", x, y)

A letter of size 1 in one term and of another size in another one is broadcast. Inference of shapes
gives the result the size of the first term that has the letter, 1 where that is broadcast. Of an
ellipsis that the result lacks the kernel has no sum. One that it has is a batch of matrix products,
which only letters are taken for. Where the result is not written, the kernel takes no capitals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.equations import ELLIPSIS, equation_of
from sambac.graph.nodes import static_shape
from sambac.passes.rewriting import Rule, RulePass

from .infer_shapes import infer

_Size = int | str | ir.SymbolicDim | None


def spell_results(editor: Editor, node: ir.Node) -> str | None:
    """Write the letters of the result."""
    equation = equation_of(node)
    if equation.result is not None:
        return "the result has letters"
    letters = "".join(equation.terms)
    result = (ELLIPSIS if ELLIPSIS in letters else "") + _implicit(letters)
    editor.replace(node, "Einsum", *node.inputs, equation=str(replace(equation, result=result)))
    return None


def spell_ellipses(editor: Editor, node: ir.Node) -> str | None:
    """Give the axes of ellipses letters."""
    equation = equation_of(node)
    letters = "".join(equation.terms)
    shapes = [_sizes(value) for value in node.inputs]
    if ELLIPSIS not in letters or any(shape is None for shape in shapes):
        return "no term has an ellipsis, or operands are of unknown rank"
    repeats = any(len({*term} - {"."}) < len(term.replace(ELLIPSIS, "")) for term in equation.terms)
    if repeats and ELLIPSIS in (equation.result or ""):
        return "a term repeats a letter"  # and could not leave out an axis that is broadcast
    covered = {
        len(shape or ()) - len(term) + len(ELLIPSIS)
        for term, shape in zip(equation.terms, shapes, strict=True)
        if ELLIPSIS in term
    }
    free = [letter for letter in ascii_letters if letter not in letters]
    if len(covered) > 1 or max(covered) > len(free):
        return "ellipses are of several lengths, or there are not enough letters"
    spelled = "".join(free[: covered.pop()])
    editor.replace(node, "Einsum", *node.inputs, equation=str(equation).replace(ELLIPSIS, spelled))
    return None


def drop_broadcast(editor: Editor, node: ir.Node) -> str | None:
    """Leave out axes of size 1 whose letter has another size in another term."""
    equation = equation_of(node)
    terms = equation.terms
    shapes = [_sizes(value) for value in node.inputs]
    if not all(_is_plain(term, shape) for term, shape in zip(terms, shapes, strict=False)):
        return "a term has repeated letters, an ellipsis, or operands of unknown rank"
    sizes: dict[str, list[_Size]] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape or (), strict=True):
            sizes.setdefault(letter, []).append(size)
    dropped = {letter for letter, found in sizes.items() if 1 in found and set(found) != {1}}
    if not dropped:
        return "no letter is broadcast"
    operands, spelled = [], []
    for value, term, shape in zip(node.inputs, terms, shapes, strict=True):
        gone = [at for at, size in enumerate(shape or ()) if size == 1 and term[at] in dropped]
        operands.append(_without(editor, value, gone))
        spelled.append("".join(c for at, c in enumerate(term) if at not in gone))
    editor.replace(node, "Einsum", *operands, equation=str(replace(equation, terms=spelled)))
    return None


def _implicit(letters: str) -> str:
    """Return the letters of a result that is not written: those that are in one term, once."""
    return "".join(sorted(c for c in {*letters} if c.isalpha() and letters.count(c) == 1))


def _sizes(value: ir.Value | None) -> Sequence[_Size] | None:
    return None if value is None or value.shape is None else tuple(value.shape)


def _is_plain(term: str, shape: Sequence[_Size] | None) -> bool:
    return shape is not None and len(shape) == len(term) == len({*term}) and "." not in term


def _without(editor: Editor, value: ir.Value | None, axes: Sequence[int]) -> ir.Value | None:
    """Return `value` without `axes`, which have one element each."""
    shape = static_shape(value)
    if value is None or not axes:
        return value
    if shape is not None:
        return editor.op("Reshape", value, [n for at, n in enumerate(shape) if at not in axes])
    for axis in reversed(axes):
        value = editor.op("Gather", value, np.array(0), axis=axis)
    return value


@dataclass(frozen=True)
class SpellLetters(RulePass):
    """Spell sums of products, without what is broadcast along a letter; infer shapes anew then."""

    name: ClassVar[str] = "spell_letters"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Einsum": (spell_results, spell_ellipses, drop_broadcast)
    }

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place; a result of the right size may show what else is broadcast."""
        modified = False
        while super().call(model).modified:
            infer(model)
            modified = True
        return ir.passes.PassResult(model, modified=modified)
