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

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.nodes import reads
from sambac.passes.base import Pass

from .assignment import ALWAYS, LIKELY, RARELY, Choice, on_blocks
from .filters import Filters
from .layout import DOMAIN, Layout, floats, numbers, takes_another_average

SIZES = (16, 8)
"""The blocks that onnxruntime's kernels know, the larger first."""


def feature(block: int) -> str:
    """Return what a program for blocks of `block` channels requires of the host."""
    return f"nchwc{block}"


@dataclass(frozen=True)
class BlockConvolutions(Pass):
    """Let convolutions of a section work on blocks of `block` channels where they can."""

    name: ClassVar[str] = "block_convolutions"
    operators: ClassVar[frozenset[str]] = frozenset({"Conv", "ConvTranspose"})
    block: int

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model`, whose operators stand in the order in which they can run."""
        layout, nodes = Layout(model, self.block), tuple(model.graph)
        choices = [_choice(layout, node) for node in nodes]
        if not any(choice.gain == ALWAYS for choice in choices):
            return ir.passes.PassResult(model, modified=False)
        values = {value.name: value for node in nodes for value in (*reads(node), *node.outputs)}
        results = [str(value.name) for value in model.graph.outputs]
        blocked = on_blocks(choices, results, lambda name: layout.size(values[name]))
        for node, works_on_blocks in zip(nodes, blocked, strict=True):
            layout.b.go_before(node)
            if works_on_blocks:
                _RULES[node.op_type].write(layout, node)
            else:
                layout.keep(node)
        layout.finish()
        return ir.passes.PassResult(model, modified=True)


_CHANNELS_LAST = (0, 2, 3, 1)
_MANY_PADS = 4

_Fit = tuple[float, Sequence[ir.Value]] | None
"""What an operator gains by blocks, and what it reads in them; None if it cannot work on them."""


@dataclass(frozen=True)
class _Rule:
    """How an operator works on blocks: whether it can, and how that is written."""

    fits: Callable[[Layout, ir.Node], _Fit]
    write: Callable[[Layout, ir.Node], None]
    makes_blocks: bool = True


def _choice(layout: Layout, node: ir.Node) -> Choice:
    """Return what there is to choose about `node`."""
    rule = _RULES.get(node.op_type) if node.domain == "" else None
    found = rule.fits(layout, node) if rule is not None else None
    makes, names = ([str(value.name) for value in group] for group in (node.outputs, reads(node)))
    if found is None:
        return Choice(makes, names)
    if rule is not None and not rule.makes_blocks:
        makes = []
    gain, images = found[0], [str(value.name) for value in found[1]]
    return Choice(makes, [name for name in names if name not in images], images, gain)


def _fits_conv(layout: Layout, node: ir.Node) -> _Fit:
    filters, image = _filters_of(layout, node), _image(node)
    if filters is None or not layout.is_image(node.outputs[0]) or _pads_itself(node):
        return None
    if not filters.takes(layout, image):
        return None
    # The kernel for plain images and one pixel is a matrix product, and as fast.
    gain = RARELY if filters.pointwise else ALWAYS
    return gain, filters.images(layout, image)


def _write_conv(layout: Layout, node: ir.Node) -> None:
    """Conv(x, W, B) -> blocked Conv(x', W', B)."""
    filters = _filters_of(layout, node)
    assert filters is not None
    image, pads = filters.image(layout, _image(node)), numbers(node, "pads", (0, 0, 0, 0))
    image, pads = _wide(layout, filters, image, pads)
    attributes = _put_conv(layout, node, [image, filters.plain(layout)])
    attributes.update(node.attributes)
    attributes["pads"] = ir.AttrInt64s("pads", pads)


def _fits_transposed(layout: Layout, node: ir.Node) -> _Fit:
    x, strides = _image(node), numbers(node, "strides", (1, 1))
    filters = _filters_of(layout, node)
    if filters is None or not layout.is_image(x) or not layout.is_image(node.outputs[0]):
        return None
    spread = any(step != 1 for step in strides)
    if spread and not filters.depthwise:
        return None
    if _pads_itself(node) or _margins(layout, node, strides) is None:
        return None
    # The kernel for plain images makes columns of one pixel, too, and copies them.
    gain = layout.size(node.outputs[0]) if filters.pointwise else ALWAYS
    return gain, [x, *filters.mirrored_images(layout)]


def _write_transposed(layout: Layout, node: ir.Node) -> None:
    """ConvTranspose(x, W, B) -> blocked Conv(x', mirrored W', B), with zeros set into x'."""
    x, strides = _image(node), numbers(node, "strides", (1, 1))
    filters, margins = _filters_of(layout, node), _margins(layout, node, strides)
    assert filters is not None
    assert margins is not None
    spread = any(step != 1 for step in strides)
    image = layout.spread(x, strides) if spread else layout.blocked(x)
    image, margins = _wide(layout, filters, image, margins)
    attributes = _put_conv(layout, node, [image, filters.mirrored(layout)])
    kept = ("kernel_shape", "dilations", "group")
    attributes.update({key: attr for key, attr in node.attributes.items() if key in kept})
    attributes["pads"] = ir.AttrInt64s("pads", margins)


def _wide(
    layout: Layout, filters: Filters, image: ir.Value, pads: tuple[int, ...]
) -> tuple[ir.Value, tuple[int, ...]]:
    """Return an image with the zeros beside its rows, where they are many, and the other pads.

    The kernel works on six pixels at once, but one by one where it sees pads beside a row: with
    filters of 5 pixels 0.6 to 0.95 of the time are left, with 7 pixels 0.55 to 0.85. Pads above and
    below, which it leaves out, and those of a filter of 3 pixels, cost less than to set zeros.
    """
    top, left, bottom, right = pads
    if left + right < _MANY_PADS or filters.depthwise or filters.sees_few(layout):
        return image, pads
    return layout.widened(image, left, right), (top, 0, bottom, 0)


def _image(node: ir.Node) -> ir.Value:
    """Return the first input, which none of these operators can do without."""
    image = node.inputs[0]
    assert image is not None
    return image


def _filters_of(layout: Layout, node: ir.Node) -> Filters | None:
    group = numbers(node, "group", (1,))[0]
    return Filters.of(layout, node.inputs[1], group, node.op_type == "ConvTranspose")


def _pads_itself(node: ir.Node) -> bool:
    """Tell whether the operator works out its padding from sizes."""
    mode = node.attributes.get("auto_pad")
    return "output_shape" in node.attributes or (mode is not None and mode.as_string() != "NOTSET")


def _margins(layout: Layout, node: ir.Node, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the padding of the convolution that a transposed one is; None if it were negative.

    Its image is that of the node with `stride - 1` zeros behind each element.
    """
    image, result = layout.shape(node.inputs[0])[2:], layout.shape(node.outputs[0])[2:]
    kernel = layout.shape(node.inputs[1])[2:]
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


def _put_conv(
    layout: Layout, node: ir.Node, operands: list[ir.Value]
) -> MutableMapping[str, ir.Attr]:
    """Put the blocked convolution for `node`; return its attributes, which are still to be filled.

    Biases are no images and stay as they are.
    """
    biases = [None if value is None else layout.plain(value) for value in node.inputs[2:]]
    out, name = node.outputs[0], layout.fresh()
    made = layout.b.op("Conv", *operands, *biases, domain=DOMAIN, like=out, name=name)
    layout.stand_in(node, made)
    return _attributes(made)


def _attributes(made: ir.Value) -> MutableMapping[str, ir.Attr]:
    """Return the attributes of the operator that makes `made`."""
    maker = made.producer()
    assert maker is not None
    return maker.attributes


def _fits_elementwise(layout: Layout, node: ir.Node) -> _Fit:
    """All images are of one shape, and the rest are numbers."""
    shape = layout.shape(node.outputs[0])
    given = [value for value in node.inputs if value is not None]
    images = [value for value in given if layout.shape(value) == shape]
    if not all(map(layout.is_image, (node.outputs[0], *images))):
        return None
    others = [value for value in given if layout.shape(value) != shape]
    return (LIKELY, images) if all(map(layout.is_number, others)) else None


def _write_elementwise(layout: Layout, node: ir.Node) -> None:
    out = node.outputs[0]
    shape = layout.shape(out)
    inputs = [
        layout.blocked(value) if value is not None and layout.shape(value) == shape else value
        for value in node.inputs
    ]
    made = layout.b.op(node.op_type, *inputs, like=out, name=layout.fresh())
    _attributes(made).update(node.attributes)
    layout.stand_in(node, made)


def _fits_pool(layout: Layout, node: ir.Node) -> _Fit:
    outputs = [value for value in node.outputs if value.name]
    image = _image(node)
    if len(outputs) > 1 or not layout.is_image(image) or not layout.is_image(outputs[0]):
        return None
    if takes_another_average(node):
        return None
    # onnxruntime puts pooled images into blocks by itself, and the result in order.
    return sum(map(layout.size, (image, outputs[0]))), [image]


def _write_pool(layout: Layout, node: ir.Node) -> None:
    image, out = layout.blocked(_image(node)), node.outputs[0]
    made = layout.b.op(node.op_type, image, domain=DOMAIN, like=out, name=layout.fresh())
    _attributes(made).update(node.attributes)
    layout.stand_in(node, made)


def _fits_transpose(layout: Layout, node: ir.Node) -> _Fit:
    """[N, C, H, W] -> [N, H, W, C]: blocks give channels that lie side by side."""
    image = _image(node)
    if not layout.is_image(image) or numbers(node, "perm", ()) != _CHANNELS_LAST:
        return None
    # Making blocks, and then this of them, takes no longer than moving elements one by one, and
    # blocks of what is multiplied with a gradient have been made for a convolution anyway.
    return layout.size(image) + LIKELY, [image]


def _write_transpose(layout: Layout, node: ir.Node) -> None:
    image, out = _image(node), node.outputs[0]
    channels = layout.shape(image)[1]
    made = layout.b.op(
        "ReorderOutput",
        layout.blocked(image),
        domain=DOMAIN,
        like=out,
        name=layout.fresh(),
        channels=channels,
        channels_last=1,
    )
    layout.put_instead(node, made)


def _fits_reshape(layout: Layout, node: ir.Node) -> _Fit:
    """[N, C, H, W] -> [N', C', H, W] and -> [N, C, H', W'] keep blocks; others may make filters.

    These are [C', 1, H, W], of an image.
    """
    source, target = _image(node), node.outputs[0]
    before, after = layout.shape(source), layout.shape(target)
    if len(after) != 4 or not layout.is_image(source):
        return None
    if before[2:] != after[2:] and before[:2] != after[:2]:
        return None
    if after[1] == 1:
        layout.views[str(target.name)] = source
    elif not layout.is_image(target):
        return None
    return LIKELY, [source]


def _write_reshape(layout: Layout, node: ir.Node) -> None:
    source, target = _image(node), node.outputs[0]
    if target.name in layout.views:
        layout.defer(node)
        return
    wanted = layout.integers(layout.shape(target))
    image = layout.blocked(source)
    layout.stand_in(node, layout.b.op("Reshape", image, wanted, like=target, name=layout.fresh()))


def _fits_concat(layout: Layout, node: ir.Node) -> _Fit:
    """Images side by side, or one behind the other, or channels of several."""
    images = list(reads(node))
    if not all(map(layout.is_image, (node.outputs[0], *images))):
        return None
    width = min(layout.shape(image)[3] for image in images)
    short = numbers(node, "axis", (0,))[0] % 4 == 3 and width < layout.block
    return layout.size(node.outputs[0]) if short else LIKELY, images


def _write_concat(layout: Layout, node: ir.Node) -> None:
    """Concat along any axis of what lies as [N, C / B, H, W B]."""
    out = node.outputs[0]
    axis = numbers(node, "axis", (0,))[0] % 4
    rows = [layout.reshaped(layout.blocked(each), _apart(layout, each)) for each in reads(node)]
    like = floats(_apart(layout, out))
    made = layout.b.op("Concat", *rows, like=like, name=layout.fresh(), axis=axis)
    layout.stand_in(node, layout.reshaped(made, layout.shape(out)))


def _fits_slice(layout: Layout, node: ir.Node) -> _Fit:
    """[N, C, H, W] of which whole blocks of channels are kept."""
    image, out = _image(node), node.outputs[0]
    if not layout.is_image(image) or not layout.is_image(out) or 0 in layout.shape(out):
        return None
    spans = _spans(layout, node)
    if spans is None:
        return None
    # Blocks are copied as they lie, where elements would be picked one by one.
    picked = any(span.step != 1 for span in spans.values())
    return layout.size(out) if picked else LIKELY, [image]


def _spans(layout: Layout, node: ir.Node) -> dict[int, slice] | None:
    """Return what is kept along each axis of [N, C / B, H, W, B]; None if it is not known."""
    given = [None if value is None else value.const_value for value in node.inputs[1:]]
    if len(given) < 3 or None in given:
        return None
    starts, stops, axes, *steps = (tensor.numpy().tolist() for tensor in given if tensor)
    each = zip(axes, starts, stops, steps[0] if steps else [1] * len(axes), strict=True)
    spans = {axis % 4: slice(start, stop, step) for axis, start, stop, step in each}
    if 1 in spans:
        channels, block = layout.shape(node.inputs[0])[1], layout.block
        start, stop, step = spans[1].indices(channels)
        if start % block or stop % block or step != 1:
            return None
        spans[1] = slice(start // block, stop // block, 1)
    return spans


def _write_slice(layout: Layout, node: ir.Node) -> None:
    image, out, spans = _image(node), node.outputs[0], _spans(layout, node)
    assert spans is not None
    view = layout.reshaped(layout.blocked(image), _apart(layout, image))
    kept = [(span.start, span.stop, axis, span.step) for axis, span in spans.items()]
    given = [layout.integers(numbers) for numbers in zip(*kept, strict=True)]
    made = layout.b.op("Slice", view, *given, like=floats(_apart(layout, out)), name=layout.fresh())
    layout.stand_in(node, layout.reshaped(made, layout.shape(out)))


def _apart(layout: Layout, image: ir.Value) -> tuple[int, ...]:
    """Return how an image lies in blocks: [N, C / B, H, W, B]."""
    batch, channels, height, width = layout.shape(image)
    return batch, channels // layout.block, height, width, layout.block


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
    "Transpose": _Rule(_fits_transpose, _write_transpose, makes_blocks=False),
    "Reshape": _Rule(_fits_reshape, _write_reshape),
    "Concat": _Rule(_fits_concat, _write_concat),
    "Slice": _Rule(_fits_slice, _write_slice),
}
