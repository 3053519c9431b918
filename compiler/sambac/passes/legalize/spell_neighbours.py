"""Local response normalisation, where the kernel takes images and odd windows alone.

    LRN(x)  ->  Reshape(LRN(z)),         z = Reshape(x, [N, C, -1, 1])    for other ranks than 4
    LRN(x)  ->  Reshape(z / t^beta),     z = Reshape(x, [N, C, -1])       for windows of even sizes
                                         t = W (z * z) + bias

W [C, C] is alpha / size where the one channel is in the window of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, int_attribute, static_shape
from sambac.graph.origins import place_of
from sambac.passes.rewriting import Rule, RulePass

from .lower_normalization import band

_IMAGE = 4


def spell_neighbours(editor: Editor, node: ir.Node) -> str | None:
    """Normalise images, in windows of odd sizes."""
    x, size = node.inputs[0], int_attribute(node, "size", 1)
    if x is None or x.shape is None or x.dtype is None:
        return "the input is of unknown rank or type"
    if len(x.shape) == _IMAGE and size % 2:
        return "the kernel takes it"
    if size % 2:
        attributes = {name: each.value for name, each in node.attributes.items()}
        image = _flat(editor, x, 1)
        normal = editor.op("LRN", image, like=image, **attributes)
    else:
        normal = _in_even_window(editor, node, x, size)
    shape = static_shape(x)
    editor.replace(node, "Reshape", normal, editor.op("Shape", x) if shape is None else list(shape))
    return None


def _in_even_window(editor: Editor, node: ir.Node, x: ir.Value, size: int) -> ir.Value:
    channels, dtype = _size(x, 1), (x.dtype or ir.DataType.FLOAT).numpy()
    if channels is None:
        raise CompileError(
            f"LRN '{node.name}'{place_of(node)} has a window of {size}, an even number, on an "
            "unknown number of channels; give the input its channels, or make the window odd"
        )
    rows = _flat(editor, x)
    window = band(channels, size, float_attribute(node, "alpha", 1e-4) / size)
    weight = window.reshape(channels, channels).astype(dtype)
    total = editor.op("MatMul", weight, editor.op("Mul", rows, rows, like=rows), like=rows)
    base = editor.op("Add", total, np.array(float_attribute(node, "bias", 1.0), dtype), like=rows)
    beta = np.array(float_attribute(node, "beta", 0.75), dtype)
    return editor.op("Div", rows, editor.op("Pow", base, beta, like=rows), like=rows)


def _size(x: ir.Value, axis: int) -> int | None:
    size = None if x.shape is None else x.shape[axis]
    return size if isinstance(size, int) else None


def _flat(editor: Editor, x: ir.Value, *behind: int) -> ir.Value:
    """Return `x` [N, C, ...] as [N, C, -1, *behind]."""
    shape = static_shape(x)
    if shape is not None:
        return editor.op("Reshape", x, [*shape[:2], prod(shape[2:]), *behind])
    given = editor.op("Shape", x)
    first, others = (editor.op("Slice", given, [begin], [end]) for begin, end in ((0, 2), (2, 99)))
    count = editor.op("ReduceProd", others, keepdims=1)
    target = editor.op("Concat", first, count, list(behind), axis=0)
    like = ir.val("", x.dtype, ir.Shape((_size(x, 0), _size(x, 1), None, *behind)))
    return editor.op("Reshape", x, target, like=like)


@dataclass(frozen=True)
class SpellNeighbours(RulePass):
    """Write what is normalised by its neighbours as the kernel understands it."""

    name: ClassVar[str] = "spell_neighbours"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"LRN": (spell_neighbours,)}
