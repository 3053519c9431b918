"""Operators whose results have no elements: there is nothing to compute.

    f(x, ...) -> y, z   ->   y = Expand(nothing), z = Expand(nothing)

where the shapes of all results that are read are known and have a 0. Several of onnxruntime's
kernels fail for them (Split, Pad, MatMul of an empty batch, those that divide by a size), and it
may remove an operator that expands one element to none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import redirect, static_shape

from .base import WITHOUT_ELEMENTS, Pass
from .rewriting import constant, present

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmptyResults(Pass):
    """Put constants in the place of operators whose results have no elements."""

    name: ClassVar[str] = "empty_results"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_ELEMENTS})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        editor = Editor(model)
        modified = False
        for graph in tuple(model.graphs()):
            for node in tuple(graph):
                if node.graph is not None and not _is_constant(node):
                    modified |= _emptied(editor, node)
        return ir.passes.PassResult(model, modified=modified)


_OF_CONSTANTS = frozenset({"Constant", "ConstantOfShape", "Expand"})


def _is_constant(node: ir.Node) -> bool:
    return node.op_type in _OF_CONSTANTS and all(
        constant(value) is not None for value in present(node.inputs)
    )


def _emptied(editor: Editor, node: ir.Node) -> bool:
    """Do so for `node`; return whether its results are empty."""
    read = [out for out in node.outputs if out.uses() or out.is_graph_output()]
    shapes = [static_shape(out) for out in read]
    known = [shape for shape in shapes if shape is not None and 0 in shape]
    if not read or len(known) != len(read) or not all(_has_numbers(out) for out in read):
        return False
    editor.rewrite(node)
    for out, shape in zip(read, known, strict=True):
        redirect(out, _nothing(editor, out, shape))
    editor.remove(node)
    logger.debug("empty_results: rewrote %s", node.name)
    return True


def _has_numbers(out: ir.Value) -> bool:
    return isinstance(out.type, ir.TensorType) and out.dtype != ir.DataType.STRING


def _nothing(editor: Editor, out: ir.Value, shape: Sequence[int]) -> ir.Value:
    assert out.dtype is not None
    content = editor.initializer(np.zeros(shape, out.dtype.numpy()), f"{out.name}_none")
    if editor.opset < 8:  # which has no Expand
        return editor.op("Identity", content, like=out)
    target = editor.initializer(np.asarray(shape, np.int64), f"{out.name}_shape")
    return editor.op("Expand", content, target, like=out)
