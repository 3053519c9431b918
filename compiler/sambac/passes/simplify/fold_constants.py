"""Constant folding: what depends on constants alone is computed now, where the result is small.

    Op(constants)                       ->  the result, an initializer
    Shape(x), Size(x)                   ->  the numbers, if the shape of x is known
    ConstantOfShape(constant)           ->  the numbers, if they are a short list of whole ones,
                                            as those that pads are computed from
    Op(fill)                            ->  the fill of the result's shape, for
                                            Reshape, Flatten, Squeeze, Unsqueeze, Transpose,
                                            Expand, Identity

A result is folded if it has at most `bytes` bytes, or at most as many as the initializers it is
computed from when nothing else reads those; so a model never grows by more than that, and a
`ConstantOfShape` weight stays one. Folded operators run in onnxruntime, all of them in one tiny
session; what would round by the processor is computed in float64 (`evaluation`).

Never folded: random operators, operators with subgraphs, (de)quantisation, which onnxruntime
needs to see, sequences, optionals and strings, what other hosts might compute otherwise, and sums
and products of nothing, which onnxruntime computes otherwise (`empty_results`).

Branches that are always taken (`InlineBranches`):

    If(true, then, else)   ->  the operators of `then`, in the graph that holds the If
    If(false, then, else)  ->  the operators of `else`

for a condition that is a constant of one element. Exporters write such an If around what depends
on a rank or a flag; as operators of the graph itself, its branch can be planned and folded.
Names are unique across all graphs of the model, so nothing has to be renamed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array, is_uniform
from sambac.graph.editor import Editor
from sambac.graph.nodes import graph_of, has_subgraphs, int_attribute, redirect, static_shape
from sambac.ops import is_random
from sambac.passes.rewriting import Rule, RulePass, constant, derived_name, present
from sambac.passes.workarounds.empty_results import EmptySums

from .evaluation import evaluate, is_computable

_SMALL = 1024
"""Results of so many bytes are folded from anything."""
_MESSAGE_BYTES = 1 << 29
"""What one session is asked to fold; a message cannot hold more than 2 GiB."""

_KEPT = frozenset(
    ("ConstantOfShape", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
)
_FILL_MOVERS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Identity")
_NUMPY_TYPES = frozenset(
    ("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FLOAT16",
     "FLOAT", "DOUBLE")
)  # fmt: skip


def _may_fold(node: ir.Node, opset: int) -> bool:
    """Tell whether the operator is one that folds, whatever it reads."""
    if node.domain != "" or node.op_type in _KEPT or not node.inputs:
        return False
    if is_random(node) or has_subgraphs(node):
        return False
    if any(out.is_graph_output() for out in node.outputs):
        return False
    return is_computable(node, opset)


def _sums_nothing(node: ir.Node) -> bool:
    """Tell whether onnxruntime gives something else for the operator than ONNX says."""
    read = (static_shape(value) or () for value in present(node.inputs))
    return node.op_type in EmptySums.rules and any(0 in shape for shape in read)


def _is_stored(value: ir.Value) -> bool:
    """Tell whether the value is an initializer of numbers that no caller can override."""
    tensor = value.const_value
    return (
        value.is_initializer()
        and not value.is_graph_input()
        and tensor is not None
        and tensor.dtype != ir.DataType.STRING
    )


def _byte_size(value: ir.Value) -> int | None:
    shape = static_shape(value)
    if shape is None or value.dtype is None:
        return None
    if not isinstance(value.type, ir.TensorType) or value.dtype.name not in _NUMPY_TYPES:
        return None
    return int(np.prod(shape, dtype=np.int64)) * value.dtype.bitwidth // 8


def _replace_by_results(editor: Editor, nodes: Sequence[ir.Node]) -> bool:
    results = evaluate(nodes, editor.opset) if nodes else None
    if results is None:
        return False
    _put_results(editor, nodes, results)
    return True


def _put_results(editor: Editor, nodes: Sequence[ir.Node], results: Mapping[str, Array]) -> None:
    """Put initializers in the place of the nodes."""
    sources: dict[ir.Value, tuple[ir.Value, ...]] = {}
    for node in nodes:
        read = [source for v in node.inputs if v for source in sources.get(v, (v,))]
        sources.update(dict.fromkeys(node.outputs, tuple(dict.fromkeys(read))))
    for node in reversed(nodes):
        editor.rewrite(node)
        for out in node.outputs:
            if out.uses():
                origin = sources[out]
                weights = [source for source in origin if (_byte_size(source) or 0) > 8]
                name = derived_name(weights[0] if weights else out, "folded")
                content = results[out.name or ""]
                out.replace_all_uses_with(editor.initializer(content, name, origin=origin))
        editor.remove(node)


def _fold_shape(editor: Editor, node: ir.Node) -> str | None:
    """Shape(x), Size(x) -> the numbers."""
    shape = static_shape(node.inputs[0])
    if shape is None:
        return "the shape is not known"
    if node.op_type == "Size":
        content = np.asarray(math.prod(shape), np.int64)
    else:
        start, end = int_attribute(node, "start", 0), int_attribute(node, "end", len(shape))
        content = np.asarray(shape[start:end], np.int64)
    return _settle(editor, node, content)


def _fold_fill(editor: Editor, node: ir.Node) -> str | None:
    """Move(fill) -> fill."""
    array, shape = constant(node.inputs[0]), static_shape(node.outputs[0])
    if array is None or shape is None or array.size < 2 or not is_uniform(array):
        return "the input is no fill, or the shape is not known"
    if 0 in shape:
        return "the result is empty"
    return _settle(editor, node, np.broadcast_to(array.reshape(-1)[0], shape))


def _fold_list(editor: Editor, node: ir.Node) -> str | None:
    """ConstantOfShape(constant) -> the numbers."""
    array = constant(node.outputs[0])
    if array is None or array.ndim != 1 or array.dtype.kind != "i" or array.nbytes > _SMALL:
        return "the result is no small list of whole numbers, or its size is not known"
    return _settle(editor, node, array)


def _settle(editor: Editor, node: ir.Node, content: Array) -> str | None:
    """Replace the node by a constant."""
    out = node.outputs[0]
    if out.is_graph_output():
        return "the constant is a graph output"
    out.replace_all_uses_with(editor.initializer(content, f"{out.name}_folded"))
    editor.remove(node)
    return None


@dataclass(frozen=True)
class FoldConstants(RulePass):
    """Compute constant results of at most `bytes` bytes."""

    name: ClassVar[str] = "fold_constants"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        **dict.fromkeys(("Shape", "Size"), (_fold_shape,)),
        **dict.fromkeys(_FILL_MOVERS, (_fold_fill,)),
        "ConstantOfShape": (_fold_list,),
    }
    operators: ClassVar[frozenset[str] | None] = None  # all of them fold, by rules or computed
    bytes: int = _SMALL

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold in every graph of `model`, again while what was computed lets rules fold more."""
        modified = False
        while super().call(model).modified | self._compute_all(model):
            modified = True
        return ir.passes.PassResult(model, modified=modified)

    def _compute_all(self, model: ir.Model) -> bool:
        editor, modified = Editor(model), False
        for graph in tuple(model.graphs()):
            modified |= self._compute(editor, graph)
        return modified

    def _compute(self, editor: Editor, graph: ir.Graph) -> bool:
        """Evaluate the constant nodes of a graph, as many at a time as fit one message."""
        modified = False
        known: set[ir.Value] = set()
        chosen: list[ir.Node] = []
        total = 0
        for node in tuple(graph):
            if not self._is_foldable(node, known, editor.opset):
                continue
            size = sum(_byte_size(value) or 0 for value in present(node.inputs))
            if total + size > _MESSAGE_BYTES:
                modified |= _replace_by_results(editor, chosen)
                known, chosen, total = set(), [], 0
            if size <= _MESSAGE_BYTES and self._is_foldable(node, known, editor.opset):
                chosen.append(node)
                known.update(node.outputs)
                total += size
        return _replace_by_results(editor, chosen) or modified

    def _is_foldable(self, node: ir.Node, known: set[ir.Value], opset: int) -> bool:
        # What it reads first: it tells most operators apart, in no time.
        inputs = present(node.inputs)
        if not all(value in known or _is_stored(value) for value in inputs):
            return False
        if not _may_fold(node, opset) or _sums_nothing(node):
            return False
        sizes = [_byte_size(out) for out in node.outputs]
        if any(size is None for size in sizes):
            return False
        total = sum(size for size in sizes if size is not None)
        owned = sum(_byte_size(value) or 0 for value in set(inputs) if len(value.uses()) == 1)
        return total <= max(self.bytes, owned)


def inline_branch(editor: Editor, node: ir.Node) -> str | None:
    """If(constant, then, else) -> the operators of the branch taken."""
    condition = constant(node.inputs[0])
    if condition is None or condition.size != 1:
        return "the condition is no constant"
    taken = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    branch = node.attributes[taken].as_graph()
    results = list(branch.outputs)
    branch.outputs.clear()
    moved = _move(branch, node)
    for out, result in zip(node.outputs, results, strict=True):
        if redirect(out, result) is not None:
            out.replace_all_uses_with(_copy(editor, out, result), replace_graph_outputs=True)
    editor.remove(node)
    for inner in moved:
        if inner.domain == "" and inner.op_type == "If":
            editor.rewrite(inner)
            inline_branch(editor, inner)
    return None


def _move(branch: ir.Graph, node: ir.Node) -> list[ir.Node]:
    """Move everything in `branch` to where `node` is; return its operators."""
    home = graph_of(node)
    for name in list(branch.initializers):
        home.register_initializer(branch.initializers.pop(name))
    moved = list(branch)
    branch.remove(moved)
    home.insert_before(node, moved)
    return moved


def _copy(editor: Editor, out: ir.Value, result: ir.Value) -> ir.Value:
    """Compute `result` once more under the name of `out`, which is an output of a graph."""
    copied = editor.op("Identity", result, like=result)
    copied.name, out.name = out.name, None
    return copied


@dataclass(frozen=True)
class InlineBranches(RulePass):
    """Replace every If whose condition is a constant by the branch it takes."""

    name: ClassVar[str] = "inline_branches"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"If": (inline_branch,)}
