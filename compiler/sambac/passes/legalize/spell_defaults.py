"""What operators leave to be found, spelled out where kernels of onnxruntime do not find it.

Axes of a Resize that count from the start (`SpellResizing`):

    Resize(x, .., axes = [-2, -1])  ->  Resize(x, .., axes = [2, 3])    x of 4 axes

With `keep_aspect_ratio_policy` the kernel makes other sizes of those that count from the end.

The bias of a fused attention (`GiveBias`):

    com.microsoft.Attention(x, w)  ->  com.microsoft.Attention(x, w, 0)

It may be absent, but the kernel reads it all the same, and ends the process.

Steps of a Scan along another axis than the first, where there may be no elements (`StepsFirst`):

    y = Scan(.., scan_output_axes = [1])  ->  y = Transpose(Scan(.., scan_output_axes = [0]))

The kernel divides by the size of an axis to turn them, and ends the process where it is 0.

Strings that are gathered with others behind them, one by one (`GatherStrings`):

    Gather(x, i; axis)  ->  Gather(Reshape(x, -1), Gather(p, i; axis); 0)     x strings
                            p = Reshape(Range(0, Size(x), 1), Shape(x))

The kernel copies the first string of each row, and leaves the others empty. Before opset 11, which
has Range, such a model is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute
from sambac.graph.origins import place_of
from sambac.passes.rewriting import Rule, RulePass


def spell_resizing(editor: Editor, node: ir.Node) -> str | None:
    """Let no axis of a Resize count from the end."""
    axes, x = node.attributes.get("axes"), node.inputs[0]
    if axes is None or min(axes.as_ints(), default=0) >= 0 or x is None or x.shape is None:
        return "they count from the start, or their number is not known"
    counted = [axis % len(x.shape) for axis in axes.as_ints()]
    node.attributes["axes"] = ir.AttrInt64s("axes", counted)
    return None


@dataclass(frozen=True)
class SpellResizing(RulePass):
    """Write axes of what is resized as the kernel understands them."""

    name: ClassVar[str] = "spell_resizing"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Resize": (spell_resizing,)}


def give_bias(editor: Editor, node: ir.Node) -> str | None:
    """Attention(x, w) -> Attention(x, w, 0)."""
    weights = input_at(node, 1)
    if input_at(node, 2) is not None or weights is None or weights.dtype is None:
        return "it has one"
    size = editor.op("Gather", editor.op("Shape", weights), np.ones(1, np.int64))
    zero = ir.tensor(np.zeros(1, weights.dtype.numpy()))
    bias = editor.op("ConstantOfShape", size, value=zero)
    node.resize_inputs(max(len(node.inputs), 3))
    node.replace_input_with(2, bias)
    return None


@dataclass(frozen=True)
class GiveBias(RulePass):
    """Give zeros to fused attentions that have no bias."""

    name: ClassVar[str] = "give_bias"
    domain: ClassVar[str] = "com.microsoft"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Attention": (give_bias,)}


def _may_be_empty(value: ir.Value) -> bool:
    return any(not isinstance(size, int) or size == 0 for size in value.shape or ())


def steps_first(editor: Editor, node: ir.Node) -> str | None:
    """Let a Scan put its steps first, and turn what may have no elements behind it."""
    given = node.attributes.get("scan_output_axes")
    axes = [] if given is None else list(given.as_ints())
    results = node.outputs[len(node.outputs) - len(axes) :]
    moved = [at for at, value in enumerate(results) if axes[at] and _may_be_empty(value)]
    if not moved:
        return "steps come first, or there are elements"
    editor.go_behind(node)
    for at in moved:
        value, sizes = results[at], list(results[at].shape or ())
        axis = axes[at] % len(sizes)
        turned = ir.Value(name=value.name, type=value.type, shape=value.shape)
        value.replace_all_uses_with(turned, replace_graph_outputs=True)
        value.name = editor.names.value(f"{value.name}_steps")
        value.shape = ir.Shape([sizes.pop(axis), *sizes])
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(sizes) + 1)]
        editor.put(ir.node("Transpose", [value], {"perm": order}, outputs=[turned]))
        axes[at] = 0
    node.attributes["scan_output_axes"] = ir.AttrInt64s("scan_output_axes", axes)
    return None


@dataclass(frozen=True)
class StepsFirst(RulePass):
    """Turn results of scans by an operator of its own, where they may have no elements."""

    name: ClassVar[str] = "steps_first"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Scan": (steps_first,)}


_FIRST_WITH_RANGE = 11


def gather_strings(editor: Editor, node: ir.Node) -> str | None:
    """Gather(x, i; axis) -> Gather(Reshape(x, -1), Gather(p, i; axis); 0), strings one by one."""
    x, indices = node.inputs[:2]
    if x is None or x.dtype != ir.DataType.STRING:
        return "what is gathered are no strings"
    axis, sizes = int_attribute(node, "axis"), () if x.shape is None else tuple(x.shape)
    if sizes and all(size == 1 for size in sizes[axis % len(sizes) + 1 :]):
        return "they are gathered one by one"
    if editor.opset < _FIRST_WITH_RANGE:
        raise CompileError(
            f"node '{node.name}'{place_of(node)}: onnxruntime gathers the first string of each "
            f"row alone; export the model with opset {_FIRST_WITH_RANGE} or later, by which they "
            "are gathered one by one"
        )
    ends = np.asarray(0, np.int64), editor.op("Size", x), np.asarray(1, np.int64)
    places = editor.op("Reshape", editor.op("Range", *ends), editor.op("Shape", x))
    wanted = editor.op("Gather", places, indices, axis=axis)
    row = editor.op("Reshape", x, np.asarray([-1], np.int64))
    editor.replace(node, "Gather", row, wanted, axis=0)
    return None


@dataclass(frozen=True)
class GatherStrings(RulePass):
    """Gather strings one by one."""

    name: ClassVar[str] = "gather_strings"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Gather": (gather_strings,)}
