"""Constant operands, spelled as all who read them understand them.

Slices that say where they end (`SpellSlices`):

    Slice(x, starts, ends = INT_MAX, axes, steps < 0)  ->  Slice(x, starts, ends = INT64_MIN, ..)

onnxruntime takes the largest int32 and the largest int64 for the far end, whichever way it goes:
back from there to the first element. Shape inference, and the specification, find nothing there.
What is computed is what onnxruntime computes.

Which half of a spectrum is left out (`SpellSides`):

    STFT(x, ...)  ->  STFT(x, ..., onesided = 1)

That is what it means; shape inference takes a missing attribute for 0.

Signals with an axis for the parts of their numbers (`SpellSignals`):

    STFT(x [b, n], ...)  ->  STFT(Unsqueeze(x, 2), ...)

as the standard has them. PyTorch leaves the axis out, and onnxruntime takes what has none.

Margins of pools whose windows have gaps (`SpellMargins`):

    MaxPool(x, auto_pad = SAME_UPPER, dilations = 2)  ->  MaxPool(x, pads, dilations = 2)

onnxruntime finds margins as if there were no gaps, and has as many windows as fit. Where it works
on blocks of channels it checks results by an inference that counts as many as without gaps.

Windows that all fit (`SpellMargins` too):

    MaxPool(x, ceil_mode = 1)  ->  MaxPool(x)    where that has as many windows

Before opset 22 the same inference counts a last window that begins behind the image, and has none.

Margins of all axes, in their order (`SpellPads`):

    Pad(x, pads, value, axes = [-1])  ->  Pad(x, pads of all, value, axes = [0, 1])    x of 2 axes

Where Transposes are around a Pad, onnxruntime moves one through it, and then permutes the margins
as if those of all axes were there.

Bounds of a Range as scalars (`ScalarRanges`):

    Range([a], b, [c])  ->  Range(a, b, c)    for constants of one element

onnxruntime takes vectors of one element when it runs a Range, but not where they are constants:
then its shape inference refuses the graph, which folding can bring about.

Axes of reductions that count from the start, where there may be no elements (`SpellAxes`):

    ReduceMean(x, axes = -1)  ->  ReduceMean(x, axes = 1)      x [N, 5]

also ArgMax, ArgMin and all other reductions. Where a size is 0, as an open one may turn out to be,
onnxruntime takes no negative axis for one that goes: the result of it has the shape of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute, text_attribute
from sambac.passes.rewriting import Rule, RulePass, constant, integers

_SAMPLES = 2
_FAR_ENDS = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)


def spell_slice(editor: Editor, node: ir.Node) -> str | None:
    """Let a slice that goes back to INT_MAX go back beyond the first element."""
    ends, steps = constant(input_at(node, 2)), integers(input_at(node, 4))
    if ends is None or steps is None or ends.size != len(steps):
        return "where it ends is not known, or it goes forward"
    wide = ends.astype(np.int64)
    far = np.isin(wide, _FAR_ENDS) & (np.asarray(steps) < 0)
    if not far.any():
        return "it ends where it says"
    wide[far] = np.iinfo(np.int64).min
    if ends.dtype != np.int64:
        wide = np.maximum(wide, np.iinfo(ends.dtype).min)
    content = editor.initializer(wide.astype(ends.dtype), f"{node.outputs[0].name}_ends")
    node.replace_input_with(2, content)
    return None


@dataclass(frozen=True)
class SpellSlices(RulePass):
    """Write constant ends of slices that go back as all who read them understand them."""

    name: ClassVar[str] = "spell_slices"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Slice": (spell_slice,)}


def spell_sides(editor: Editor, node: ir.Node) -> str | None:
    """STFT(x, ...) -> STFT(x, ..., onesided = 1)."""
    if "onesided" in node.attributes:
        return "it says so"
    node.attributes["onesided"] = ir.AttrInt64("onesided", 1)
    return None


@dataclass(frozen=True)
class SpellSides(RulePass):
    """Write defaults of transforms that shape inference does not know."""

    name: ClassVar[str] = "spell_sides"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"STFT": (spell_sides,)}


def spell_signal(editor: Editor, node: ir.Node) -> str | None:
    """STFT(x, ...) -> STFT(Unsqueeze(x), ...)."""
    x = node.inputs[0]
    if x is None or x.shape is None or len(x.shape) > _SAMPLES:
        return "the signal has an axis of parts, or an unknown rank"
    node.replace_input_with(0, editor.op("Unsqueeze", x, [_SAMPLES]))
    return None


@dataclass(frozen=True)
class SpellSignals(RulePass):
    """Give signals of examples and samples an axis for the parts of their numbers."""

    name: ClassVar[str] = "spell_signals"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"STFT": (spell_signal,)}


def spell_margins(editor: Editor, node: ir.Node) -> str | None:
    """Let a pool whose windows have gaps say the margins that onnxruntime gives it."""
    mode, x = text_attribute(node, "auto_pad", "NOTSET"), node.inputs[0]
    if not mode.startswith("SAME") or x is None or x.shape is None:
        return "it says its margins, or has no known rank"
    image = [size for size in x.shape[2:] if isinstance(size, int)]
    kernel, steps, gaps = (
        node.attributes[name].as_ints() if name in node.attributes else [1] * len(image)
        for name in ("kernel_shape", "strides", "dilations")
    )
    if max(gaps, default=1) == 1 or len(image) != len(x.shape) - 2:
        return "its windows have no gaps, or the image has open sizes"
    sizes = zip(image, kernel, steps, strict=True)
    both = [(-(-size // step) - 1) * step + window - size for size, window, step in sizes]
    if min(both) < 0:
        return "it leaves elements out"
    more_before = mode == "SAME_LOWER"
    before = [(margin + more_before) // 2 for margin in both]
    after = [margin - first for margin, first in zip(both, before, strict=True)]
    del node.attributes["auto_pad"]
    node.attributes["pads"] = ir.AttrInt64s("pads", [*before, *after])
    return None


def spell_fitting(editor: Editor, node: ir.Node) -> str | None:
    """MaxPool(x, ceil_mode = 1) -> MaxPool(x)."""
    x, mode = node.inputs[0], text_attribute(node, "auto_pad", "NOTSET")
    if not int_attribute(node, "ceil_mode") or mode not in ("NOTSET", "VALID"):
        return "it has no windows but those that fit, or finds its margins"
    sizes = () if x is None or x.shape is None else x.shape[2:]
    image = [size for size in sizes if isinstance(size, int)]
    if not image or len(image) < len(sizes):
        return "sizes are open"
    kernel, steps, gaps, pads = (
        node.attributes[name].as_ints() if name in node.attributes else [default] * count
        for name, default, count in (
            *(("kernel_shape", 1, len(image)), ("strides", 1, len(image))),
            *(("dilations", 1, len(image)), ("pads", 0, 2 * len(image))),
        )
    )
    for axis, size in enumerate(image):
        before, after = (pads[axis], pads[len(image) + axis]) if mode == "NOTSET" else (0, 0)
        rest = size + before + after - (kernel[axis] - 1) * gaps[axis] - 1
        begin = -(-rest // steps[axis]) * steps[axis]
        if begin > rest and begin < size + before:
            return "a last window does not fit"
    del node.attributes["ceil_mode"]
    return None


@dataclass(frozen=True)
class SpellMargins(RulePass):
    """Write margins of which the inference of onnxruntime makes other sizes than its kernels."""

    name: ClassVar[str] = "spell_margins"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(
        ("AveragePool", "LpPool", "MaxPool"), (spell_margins, spell_fitting)
    )


def spell_pads(editor: Editor, node: ir.Node) -> str | None:
    """Pad(x, pads, value, axes) -> Pad(x, pads of all axes, value, all axes)."""
    x, pads, axes = node.inputs[0], input_at(node, 1), integers(input_at(node, 3))
    if x is None or x.shape is None or pads is None or axes is None:
        return "it names no axes, or they or their number are not known"
    rank, count = len(x.shape), len(axes)
    if axes == tuple(range(rank)):
        return "it names all axes"
    place = {axis % rank: at for at, axis in enumerate(axes)}
    absent = 2 * count  # where the zero stands behind what is given
    starts = [place.get(axis, absent) for axis in range(rank)]
    ends = [at if at == absent else at + count for at in starts]
    order, known = [*starts, *ends], integers(pads)
    if known is not None:
        content = [(*known, 0)[at] for at in order]
        margins = editor.initializer(np.asarray(content, np.int64), f"{node.outputs[0].name}_pads")
    else:
        margins = editor.op("Gather", editor.op("Concat", pads, [0], axis=0), np.asarray(order))
    node.replace_input_with(1, margins)
    all_axes = editor.initializer(np.arange(rank, dtype=np.int64), f"{node.outputs[0].name}_axes")
    node.replace_input_with(3, all_axes)
    return None


@dataclass(frozen=True)
class SpellPads(RulePass):
    """Write margins of named axes as those of all axes."""

    name: ClassVar[str] = "spell_pads"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Pad": (spell_pads,)}


def range_of_scalars(editor: Editor, node: ir.Node) -> str | None:
    """Range([a], b, [c]) -> Range(a, b, c)."""
    changed = False
    for index, value in enumerate(node.inputs):
        array = constant(value)
        if value is None or array is None or array.size != 1 or array.ndim == 0:
            continue
        bound = editor.initializer(array.reshape(()), f"{value.name}_scalar", origin=(value,))
        node.replace_input_with(index, bound)
        changed = True
    return None if changed else "no bound is a constant vector"


@dataclass(frozen=True)
class ScalarRanges(RulePass):
    """Make scalars of the constant bounds of every Range."""

    name: ClassVar[str] = "scalar_ranges"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Range": (range_of_scalars,)}


_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


def spell_axes(editor: Editor, node: ir.Node) -> str | None:
    """Let the axes of a reduction be none from the end, if its operand may have no elements."""
    x = node.inputs[0]
    if x is None or x.shape is None:
        return "the number of axes is not known"
    if all(isinstance(size, int) and size > 0 for size in x.shape):
        return "there are elements"
    rank = len(x.shape)
    axis, axes = node.attributes.get("axis"), node.attributes.get("axes")
    if axis is not None and axis.as_int() >= 0:
        return "it counts from the start"
    if axis is not None:
        node.attributes["axis"] = ir.AttrInt64("axis", axis.as_int() % rank)
        return None
    given = integers(input_at(node, 1)) if axes is None else axes.as_ints()
    if given is None or min(given, default=0) >= 0:
        return "they count from the start, or are not known"
    counted = [axis % rank for axis in given]
    if axes is not None:
        node.attributes["axes"] = ir.AttrInt64s("axes", counted)
        return None
    content = editor.initializer(np.asarray(counted, np.int64), f"{node.outputs[0].name}_axes")
    node.replace_input_with(1, content)
    return None


@dataclass(frozen=True)
class SpellAxes(RulePass):
    """Write axes as the kernels for no elements understand them."""

    name: ClassVar[str] = "spell_axes"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(
        (*_REDUCTIONS, "ArgMax", "ArgMin"), (spell_axes,)
    )
