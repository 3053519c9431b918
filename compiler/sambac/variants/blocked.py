"""Convolutions in the layout that a host's kernels are made for.

onnxruntime's fastest convolutions read and write images in blocks of channels, [N, C / B, H, W, B]
for [N, C, H, W] with B = 16 or 8 after the width of the host's vectors. It brings them in by itself
where weights are constants; those of a training step are not. So each section with a convolution
gets variants in which

    Conv(x, W)                             ->  blocked Conv(reordered x, reordered W)
    ConvTranspose(x, W), of stride one     ->  blocked Conv(reordered x, mirrored, reordered W)
    ConvTranspose(x, W), one filter each   ->  the same, with zeros set between the elements of x

Blocked values keep their shape on paper; only the order of their elements differs. What works
element by element, pooling, and views that keep blocks whole can be had in either order; which of
them work on blocks too is decided for all at once (`assignment.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from sambac.section_program import FormalProgram

from .assignment import ALWAYS, LIKELY, RARELY, Choice, on_blocks
from .filters import Filters
from .layout import Layout, numbers, reads

DOMAIN = "com.microsoft.nchwc"
SIZES = (16, 8)
"""The blocks that onnxruntime's kernels know, the larger first."""


def feature(block: int) -> str:
    """Return what a program for blocks of `block` channels requires of the host."""
    return f"nchwc{block}"


def blocked_program(portable: FormalProgram, block: int) -> FormalProgram | None:
    """Return `portable` with blocked convolutions; None if it has none that can be blocked."""
    model = onnx.ModelProto()
    model.ParseFromString(portable.graph)
    layout = Layout(model.graph, portable.values, block)
    choices = [_choice(layout, node) for node in model.graph.node]
    if not any(choice.gain == ALWAYS for choice in choices):
        return None
    blocked = on_blocks(choices, portable.outputs, layout.size)
    for node, works_on_blocks in zip(model.graph.node, blocked, strict=True):
        if works_on_blocks:
            _RULES[node.op_type].write(layout, node)
        else:
            layout.copy(node)
    nodes = layout.finish(portable.outputs)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(layout.constants)
    model.opset_import.add(domain=DOMAIN, version=1)
    graph = model.SerializeToString(deterministic=True)
    return FormalProgram(
        graph, portable.inputs, portable.weights, portable.outputs, portable.values
    )


@dataclass(frozen=True)
class _Rule:
    """How an operator works on blocks.

    `fits` says whether it can, what it gains, and what it reads in blocks; `write`
    appends it.
    """

    fits: Callable[[Layout, onnx.NodeProto], tuple[float, Sequence[str]] | None]
    write: Callable[[Layout, onnx.NodeProto], None]


def _choice(layout: Layout, node: onnx.NodeProto) -> Choice:
    """Return what there is to choose about `node`."""
    rule = _RULES.get(node.op_type) if node.domain == "" else None
    found = rule.fits(layout, node) if rule is not None else None
    names = reads(node)
    if found is None:
        return Choice(node.output, names)
    gain, images = found
    ordered = [name for name in names if name not in images]
    return Choice(node.output, ordered, images, gain)


def _fits_conv(layout: Layout, node: onnx.NodeProto) -> tuple[float, Sequence[str]] | None:
    filters = _filters_of(layout, node)
    if filters is None or not layout.is_image(node.output[0]) or _pads_itself(node):
        return None
    if not filters.takes(layout, node.input[0]):
        return None
    # The kernel for plain images and one pixel is a matrix product, and as fast.
    gain = RARELY if filters.pointwise else ALWAYS
    return gain, filters.images(layout, node.input[0])


def _write_conv(layout: Layout, node: onnx.NodeProto) -> None:
    """Conv(x, W, B) -> blocked Conv(x', W', B)."""
    filters = _filters_of(layout, node)
    assert filters is not None
    image = filters.image(layout, node.input[0])
    _append(layout, node, [image, filters.plain(layout), *node.input[2:]])


def _fits_transposed(layout: Layout, node: onnx.NodeProto) -> tuple[float, Sequence[str]] | None:
    x, strides = node.input[0], numbers(node, "strides", (1, 1))
    filters = _filters_of(layout, node)
    if filters is None or not layout.is_image(x) or not layout.is_image(node.output[0]):
        return None
    spread = any(step != 1 for step in strides)
    if (spread and not filters.depthwise) or filters.pointwise:
        return None
    if _pads_itself(node) or _margins(layout, node, strides) is None:
        return None
    return ALWAYS, [x]


def _write_transposed(layout: Layout, node: onnx.NodeProto) -> None:
    """ConvTranspose(x, W, B) -> blocked Conv(x', mirrored W', B), with zeros set into x'."""
    x, strides = node.input[0], numbers(node, "strides", (1, 1))
    filters = _filters_of(layout, node)
    assert filters is not None
    spread = any(step != 1 for step in strides)
    image = layout.spread(x, strides) if spread else layout.blocked(x)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(
        attribute
        for attribute in node.attribute
        if attribute.name in ("kernel_shape", "dilations", "group")
    )
    margins = _margins(layout, node, strides)
    copy.attribute.append(onnx.helper.make_attribute("pads", margins))
    _append(layout, copy, [image, filters.mirrored(layout), *node.input[2:]])


def _filters_of(layout: Layout, node: onnx.NodeProto) -> Filters | None:
    group = numbers(node, "group", (1,))[0]
    return Filters.of(layout, node.input[1], group, node.op_type == "ConvTranspose")


def _pads_itself(node: onnx.NodeProto) -> bool:
    """Tell whether the operator works out its padding from sizes."""
    modes = {a.name: a.s for a in node.attribute if a.name in ("auto_pad", "output_shape")}
    return "output_shape" in modes or modes.get("auto_pad", b"NOTSET") != b"NOTSET"


def _margins(
    layout: Layout, node: onnx.NodeProto, strides: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the padding of the convolution that a transposed one is; None if it were negative.

    Its image is that of the node with `stride - 1` zeros behind each element.
    """
    image, result = layout.shape(node.input[0])[2:], layout.shape(node.output[0])[2:]
    kernel = layout.shape(node.input[1])[2:]
    dilations = numbers(node, "dilations", (1, 1))
    begins = numbers(node, "pads", (0, 0, 0, 0))[:2]
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    before = [extent - 1 - begin for extent, begin in zip(extents, begins, strict=True)]
    spread = [size * stride for size, stride in zip(image, strides, strict=True)]
    after = [
        size - source - margin + extent - 1
        for size, source, margin, extent in zip(result, spread, before, extents, strict=True)
    ]
    margins = (*before, *after)
    return margins if min(margins) >= 0 else None


def _append(layout: Layout, node: onnx.NodeProto, inputs: list[str]) -> None:
    """Append the blocked convolution for `node`; biases are no images and stay as they are."""
    for name in inputs[2:]:
        layout.plain(name)
    made = onnx.NodeProto(op_type="Conv", domain=DOMAIN, input=inputs)
    made.attribute.extend(node.attribute)
    made.output.append(layout.becomes_blocked(node.output[0]))
    layout.nodes.append(made)


def _fits_elementwise(layout: Layout, node: onnx.NodeProto) -> tuple[float, Sequence[str]] | None:
    """All images are of one shape, and the rest are numbers."""
    shape = layout.shape(node.output[0])
    images = [name for name in node.input if layout.shape(name) == shape]
    if not all(map(layout.is_image, (node.output[0], *images))):
        return None
    others = [name for name in node.input if name and name not in images]
    return (LIKELY, images) if all(map(layout.is_number, others)) else None


def _write_elementwise(layout: Layout, node: onnx.NodeProto) -> None:
    shape = layout.shape(node.output[0])
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [
        layout.blocked(name) if layout.shape(name) == shape else name for name in node.input
    ]
    made.output[:] = [layout.becomes_blocked(node.output[0])]
    layout.nodes.append(made)


def _fits_pool(layout: Layout, node: onnx.NodeProto) -> tuple[float, Sequence[str]] | None:
    outputs = [name for name in node.output if name]
    if len(outputs) > 1 or not layout.is_image(node.input[0]) or not layout.is_image(outputs[0]):
        return None
    # onnxruntime puts pooled images into blocks by itself, and the result in order.
    return sum(map(layout.size, (node.input[0], outputs[0]))), node.input


def _write_pool(layout: Layout, node: onnx.NodeProto) -> None:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.domain = DOMAIN
    made.input[:] = [layout.blocked(node.input[0])]
    made.output[:] = [layout.becomes_blocked(node.output[0])]
    layout.nodes.append(made)


def _fits_reshape(layout: Layout, node: onnx.NodeProto) -> tuple[float, Sequence[str]] | None:
    """[N, C, H, W] -> [N', C', H, W] keeps blocks; -> [C', 1, H, W] makes filters of an image."""
    source, target = node.input[0], node.output[0]
    before, after = layout.shape(source), layout.shape(target)
    if len(after) != 4 or before[2:] != after[2:] or not layout.is_image(source):
        return None
    if after[1] == 1:
        layout.views[target] = source
    elif not layout.is_image(target):
        return None
    return LIKELY, [source]


def _write_reshape(layout: Layout, node: onnx.NodeProto) -> None:
    source, target = node.input[0], node.output[0]
    if target in layout.views:
        layout.defer(node)
        return
    shape = layout.integers(layout.shape(target))
    layout.set_blocked(target, layout.op("Reshape", [layout.blocked(source), shape]))


_ELEMENTWISE = (
    "Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Mul", "Neg", "Relu", "Sigmoid", "Sqrt", "Sub", "Tanh",
)  # fmt: skip
_RULES: Mapping[str, _Rule] = {
    "Conv": _Rule(_fits_conv, _write_conv),
    "ConvTranspose": _Rule(_fits_transposed, _write_transposed),
    **dict.fromkeys(_ELEMENTWISE, _Rule(_fits_elementwise, _write_elementwise)),
    "MaxPool": _Rule(_fits_pool, _write_pool),
    "AveragePool": _Rule(_fits_pool, _write_pool),
    "Reshape": _Rule(_fits_reshape, _write_reshape),
}
