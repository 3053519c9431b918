"""Convolutions in the layout that a host's kernels are made for.

onnxruntime's fastest convolutions read and write images in blocks of channels, [N, C / B, H, W, B]
for [N, C, H, W] with B = 16 or 8 after the width of the host's vectors. It brings them in by itself
where weights are constants; those of a training step are not. So each section with a convolution
gets variants in which

    Conv(x, W)                             ->  blocked Conv(reordered x, reordered W)
    ConvTranspose(x, W), of stride one     ->  blocked Conv(reordered x, mirrored, reordered W)
    ConvTranspose(x, W), one filter each   ->  the same, with zeros set between the elements of x

Blocked values keep their shape on paper; only the order of their elements differs. They stay
blocked through what works element by element, pooling, and views that keep blocks whole, and are
put in order where something else, or the outside, reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from sambac.section_program import FormalProgram

from .filters import Filters
from .layout import Layout, numbers

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
    changed = False
    for node in model.graph.node:
        rule = _RULES.get(node.op_type) if node.domain == "" else None
        if rule is not None and rule(layout, node):
            changed |= node.op_type in _CONVOLUTIONS
        else:
            layout.copy(node)
    if not changed:
        return None
    nodes = layout.finish(portable.outputs)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(layout.constants)
    model.opset_import.add(domain=DOMAIN, version=1)
    graph = model.SerializeToString(deterministic=True)
    return FormalProgram(
        graph, portable.inputs, portable.weights, portable.outputs, portable.values
    )


def _conv(layout: Layout, node: onnx.NodeProto) -> bool:
    """Conv(x, W, B) -> blocked Conv(x', W', B)."""
    x, weight = node.input[:2]
    filters = Filters.of(layout, weight, numbers(node, "group", (1,))[0])
    if filters is None or not layout.is_image(node.output[0]):
        return False
    if _pads_itself(node):
        return False
    if filters.pointwise and not layout.only_blocked(x):
        return False  # the kernel for plain images is a matrix product, and as fast
    image = filters.image(layout, x)
    if image is None:
        return False
    _append(layout, node, [image, filters.plain(layout), *node.input[2:]])
    return True


def _conv_transpose(layout: Layout, node: onnx.NodeProto) -> bool:
    """ConvTranspose(x, W, B) -> blocked Conv(x', mirrored W', B), with zeros set into x'."""
    x, weight = node.input[:2]
    group = numbers(node, "group", (1,))[0]
    filters = Filters.of(layout, weight, group, transposed=True)
    if filters is None or not layout.is_image(x) or not layout.is_image(node.output[0]):
        return False
    strides = numbers(node, "strides", (1, 1))
    spread = any(step != 1 for step in strides)
    if (spread and not filters.depthwise) or filters.pointwise:
        return False
    if _pads_itself(node):
        return False
    margins = _margins(layout, node, strides)
    if margins is None:
        return False
    image = layout.spread(x, strides) if spread else layout.blocked(x)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(
        attribute
        for attribute in node.attribute
        if attribute.name in ("kernel_shape", "dilations", "group")
    )
    copy.attribute.append(onnx.helper.make_attribute("pads", margins))
    _append(layout, copy, [image, filters.mirrored(layout), *node.input[2:]])
    return True


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


def _elementwise(layout: Layout, node: onnx.NodeProto) -> bool:
    """Stay blocked where an image is, all images are of one shape, and the rest are numbers."""
    shape = layout.shape(node.output[0])
    images = [name for name in node.input if layout.shape(name) == shape]
    if not layout.is_image(node.output[0]) or not any(map(layout.only_blocked, images)):
        return False
    others = [name for name in node.input if name and name not in images]
    if not all(layout.is_number(name) for name in others):
        return False
    names = {name: layout.blocked(name) for name in images}
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [layout.becomes_blocked(node.output[0])]
    layout.nodes.append(made)
    return True


def _pool(layout: Layout, node: onnx.NodeProto) -> bool:
    """Pool blocked images where they are blocked."""
    outputs = [name for name in node.output if name]
    if len(outputs) > 1 or not layout.only_blocked(node.input[0]):
        return False
    if not layout.is_image(outputs[0]):
        return False
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.domain = DOMAIN
    made.input[:] = [layout.blocked(node.input[0])]
    made.output[:] = [layout.becomes_blocked(outputs[0])]
    layout.nodes.append(made)
    return True


def _reshape(layout: Layout, node: onnx.NodeProto) -> bool:
    """Keep blocks through [N, C, H, W] -> [N', C', H, W], and remember views as filters."""
    source, target = node.input[0], node.output[0]
    before, after = layout.shape(source), layout.shape(target)
    if len(before) != 4 or len(after) != 4 or before[2:] != after[2:]:
        return False
    if after[1] == 1 and layout.is_image(source):
        layout.views[target] = source
        return False
    if not (layout.is_image(target) and layout.only_blocked(source)):
        return False
    made = layout.op("Reshape", [layout.blocked(source), layout.integers(after)])
    layout.set_blocked(target, made)
    return True


_CONVOLUTIONS: Mapping[str, Callable[[Layout, onnx.NodeProto], bool]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}
_ELEMENTWISE = (
    "Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Mul", "Neg", "Relu", "Sigmoid", "Sqrt", "Sub", "Tanh",
)  # fmt: skip
_RULES: Mapping[str, Callable[[Layout, onnx.NodeProto], bool]] = {
    **_CONVOLUTIONS,
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "MaxPool": _pool,
    "AveragePool": _pool,
    "Reshape": _reshape,
}
