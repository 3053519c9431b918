"""Scales and shifts per channel, folded into the normalisation before them.

With Affine(x) = a * x + b as in `affine.py`,

    Affine(BatchNormalization(x, scale, bias))  ->  BatchNormalization(x, a * scale, a * bias + b)

if all of it is constant, nothing else reads the normalisation's result, and the new numbers,
computed in float64 and rounded once, are finite. onnxruntime does not do this; DenseNet saves
two operators after each of its 62 normalisations that have no convolution before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor

from .affine import AFFINE_OPS, affine_of, is_finite, normalization_parameters, rounded
from .rewriting import (
    Rule,
    RulePass,
    combine,
    constant,
    derived_name,
    has_one_reader,
    made_by,
    present,
)


def fold_into_normalization(editor: Editor, node: ir.Node) -> str | None:
    """Affine(BatchNormalization(x)) -> BatchNormalization(x), a * scale, a * bias + b."""
    affine = affine_of(node)
    if isinstance(affine, str):
        return affine
    inner = made_by(affine.x, "BatchNormalization")
    if inner is None or not has_one_reader(affine.x):
        return "the input is no normalisation of which this is the only reader"
    parameters = normalization_parameters(inner)
    content = constant(inner.inputs[1])
    if parameters is None or content is None:
        return "the normalisation is not one of constants"
    scale, bias = parameters[:2]
    factor = np.broadcast_to(affine.scale, scale.shape)
    arrays = (
        combine(np.multiply, scale, factor),
        combine(lambda c, a, b: a * c + b, bias, factor, affine.shift),
    )
    if not all(is_finite(array) for array in arrays):
        return "the folded numbers would not be finite"
    own = present(inner.inputs[1:3])
    folded = [
        editor.initializer(
            rounded(array, content),
            derived_name(value, "folded"),
            origin=(value, *own, *affine.sources),
        )
        for array, value in zip(arrays, own, strict=True)
    ]
    new = editor.replace(node, "BatchNormalization", inner.inputs[0], *folded, *inner.inputs[3:5])
    new.attributes.update(inner.attributes)
    new.name = inner.name
    editor.remove(inner)
    return None


@dataclass(frozen=True)
class FoldIntoNormalization(RulePass):
    """Fold scales and shifts per channel into inference normalisations."""

    name: ClassVar[str] = "fold_into_normalization"
    operators: ClassVar[frozenset[str] | None] = frozenset({"BatchNormalization"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(
        AFFINE_OPS, (fold_into_normalization,)
    )
