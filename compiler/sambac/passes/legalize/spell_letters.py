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
from dataclasses import dataclass
from string import ascii_letters
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape, text_attribute
from sambac.passes.rewriting import Rule, RulePass

from .infer_shapes import infer

_Size = int | str | ir.SymbolicDim | None


_ELLIPSIS = "..."


def spell_results(editor: Editor, node: ir.Node) -> str | None:
    """Write the letters of the result."""
    terms, arrow, _ = _equation(node)
    if arrow:
        return "the result has letters"
    result = (_ELLIPSIS if _ELLIPSIS in terms else "") + _implicit(terms)
    editor.replace(node, "Einsum", *node.inputs, equation=f"{terms}->{result}")
    return None


def spell_ellipses(editor: Editor, node: ir.Node) -> str | None:
    """Give the axes of ellipses letters."""
    terms, _, result = _equation(node)
    letters = terms.split(",")
    shapes = [_sizes(value) for value in node.inputs]
    if _ELLIPSIS not in terms or any(shape is None for shape in shapes):
        return "no term has an ellipsis, or operands are of unknown rank"
    repeats = any(len({*term} - {"."}) < len(term.replace(_ELLIPSIS, "")) for term in letters)
    if repeats and _ELLIPSIS in result:
        return "a term repeats a letter"  # and could not leave out an axis that is broadcast
    covered = {
        len(shape or ()) - len(term) + len(_ELLIPSIS)
        for term, shape in zip(letters, shapes, strict=True)
        if _ELLIPSIS in term
    }
    free = [letter for letter in ascii_letters if letter not in terms]
    if len(covered) > 1 or max(covered) > len(free):
        return "ellipses are of several lengths, or there are not enough letters"
    spelled = "".join(free[: covered.pop()])
    equation = f"{terms}->{result}".replace(_ELLIPSIS, spelled)
    editor.replace(node, "Einsum", *node.inputs, equation=equation)
    return None


def drop_broadcast(editor: Editor, node: ir.Node) -> str | None:
    """Leave out axes of size 1 whose letter has another size in another term."""
    terms, _, result = _equation(node)
    letters = terms.split(",")
    shapes = [_sizes(value) for value in node.inputs]
    if not all(_is_plain(term, shape) for term, shape in zip(letters, shapes, strict=False)):
        return "a term has repeated letters, an ellipsis, or operands of unknown rank"
    sizes: dict[str, list[_Size]] = {}
    for term, shape in zip(letters, shapes, strict=True):
        for letter, size in zip(term, shape or (), strict=True):
            sizes.setdefault(letter, []).append(size)
    dropped = {letter for letter, found in sizes.items() if 1 in found and set(found) != {1}}
    if not dropped:
        return "no letter is broadcast"
    operands, spelled = [], []
    for value, term, shape in zip(node.inputs, letters, shapes, strict=True):
        gone = [at for at, size in enumerate(shape or ()) if size == 1 and term[at] in dropped]
        operands.append(_without(editor, value, gone))
        spelled.append("".join(c for at, c in enumerate(term) if at not in gone))
    editor.replace(node, "Einsum", *operands, equation=f"{','.join(spelled)}->{result}")
    return None


def _equation(node: ir.Node) -> tuple[str, str, str]:
    """Return the letters of all terms, the arrow if there is one, and those of the result."""
    return text_attribute(node, "equation", "").replace(" ", "").partition("->")


def _implicit(terms: str) -> str:
    """Return the letters of a result that is not written: those that are in one term, once."""
    return "".join(sorted(c for c in {*terms} if c.isalpha() and terms.count(c) == 1))


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
