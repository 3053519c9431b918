"""How many windows onnxruntime finds, where the ONNX library counts others.

Poolings:
ceil_mode = 1               before opset 22 the library counts a last window that begins behind
                            the image and the margin before it; onnxruntime has none there
auto_pad = SAME_*, d > 1    the library has as many windows as without dilations d; onnxruntime
                            pads as without them, and has as many as fit

ConvTranspose:
output_shape                the library forgets it where it is smaller than the image
auto_pad = SAME_*           the library adds output_padding, and takes windows for as large as
                            steps; onnxruntime has one element for each step that a window reaches
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
WINDOWED = _POOLS | {"ConvTranspose"}
"""The operators that are counted here."""

_SAME = (b"SAME_UPPER", b"SAME_LOWER")


def differing_windows(graph: onnx.GraphProto) -> dict[int, onnx.NodeProto]:
    """Return copies of the operators of `graph` that may be counted otherwise, by position."""
    return {
        position: onnx.NodeProto.FromString(node.SerializeToString())
        for position, node in enumerate(graph.node)
        if node.domain == "" and _may_differ(node)
    }


def count_as_onnxruntime(
    graph: onnx.GraphProto, differing: Mapping[int, onnx.NodeProto], found: onnx.GraphProto
) -> bool:
    """Let inference of `graph` find as many windows of `differing` operators as onnxruntime does.

    They get windows, one beside the other, of such a size or with such a margin that there are as
    many. `found` is what was inferred of `graph`; sizes that are open there stay so. Return
    whether anything changed.
    """
    infos = {info.name: info for info in (*found.input, *found.value_info, *found.output)}
    changed = False
    for position, operator in differing.items():
        image, counted = (
            _image(infos.get(name)) for name in (operator.input[0], operator.output[0])
        )
        node = graph.node[position]
        if image is None or (counted is None and not _says_sizes(node)):
            continue
        counts = _counts(image, operator)
        if counts != counted and len(counts) == len(image) and min(counts) >= 0:
            changed = True
            _lay_out(node, image, counts)
    return changed


def _lay_out(node: onnx.NodeProto, image: Sequence[int], counts: Sequence[int]) -> None:
    """Let inference count `counts` windows of `node` on an image."""
    more = [count - size for count, size in zip(counts, image, strict=True)]
    if node.op_type not in _POOLS:  # one element becomes as many as a window has
        more = [-extra for extra in more]
    group = [item for item in node.attribute if item.name == "group"]
    kernel = [1 + max(-extra, 0) for extra in more]
    pads = [0] * len(image) + [max(extra, 0) for extra in more]
    made = (("kernel_shape", kernel), ("pads", pads))
    kept = [*group, *(onnx.helper.make_attribute(name, content) for name, content in made)]
    node.ClearField("attribute")
    node.attribute.extend(kept)


def _says_sizes(node: onnx.NodeProto) -> bool:
    return any(item.name == "output_shape" for item in node.attribute)


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def _may_differ(node: onnx.NodeProto) -> bool:
    if node.op_type not in WINDOWED:
        return False
    given = _attributes(node)
    same = given.get("auto_pad") in _SAME
    if node.op_type not in _POOLS:
        return same or _says_sizes(node)
    dilated = any(step > 1 for step in _integers(given, "dilations"))
    return bool(given.get("ceil_mode")) or (dilated and same)


def _integers(given: Mapping[str, object], name: str, default: Sequence[int] = ()) -> Sequence[int]:
    found = given.get(name)
    return [int(item) for item in found] if isinstance(found, list) and found else default


def _image(info: onnx.ValueInfoProto | None) -> list[int] | None:
    """Return the sizes after the batch and the channels, None if one is open."""
    dims = [] if info is None else info.type.tensor_type.shape.dim[2:]
    known = [dim.dim_value for dim in dims if dim.HasField("dim_value")]
    return known if known and len(known) == len(dims) else None


def _counts(image: Sequence[int], operator: onnx.NodeProto) -> Sequence[int]:
    """Return how many windows onnxruntime has along each axis of an image."""
    given = _attributes(operator)
    if operator.op_type == "ConvTranspose":
        return _transposed_counts(image, given)
    ones, rank = [1] * len(image), len(image)
    kernel = _integers(given, "kernel_shape", ones)
    strides, dilations = (_integers(given, name, ones) for name in ("strides", "dilations"))
    pads = _integers(given, "pads", [0] * 2 * rank)
    mode = given.get("auto_pad", b"NOTSET")
    counts = []
    for axis, (size, stride) in enumerate(zip(image, strides, strict=True)):
        before, after = (pads[axis], pads[rank + axis]) if mode == b"NOTSET" else (0, 0)
        if mode in _SAME:
            after = (-(-size // stride) - 1) * stride + kernel[axis] - size
        rest = size + before + after - (kernel[axis] - 1) * dilations[axis] - 1
        if not given.get("ceil_mode"):
            counts.append(int(rest / stride) + 1)  # rounded towards 0, as in C++
            continue
        count = -(-rest // stride) + 1
        counts.append(count - ((count - 1) * stride >= size + before))
    return counts


def _transposed_counts(image: Sequence[int], given: Mapping[str, object]) -> Sequence[int]:
    """Return the sizes of the result of a ConvTranspose."""
    ones = [1] * len(image)
    kernel = _integers(given, "kernel_shape")
    strides, dilations = (_integers(given, name, ones) for name in ("strides", "dilations"))
    more = _integers(given, "output_padding", [0] * len(image))
    reached = [
        min(size * stride, (size - 1) * stride + (window - 1) * gap + 1 + extra)
        for size, stride, window, gap, extra in zip(
            image, strides, kernel, dilations, more, strict=False
        )
    ]
    return _integers(given, "output_shape", reached)
