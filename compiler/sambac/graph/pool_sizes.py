"""How many windows onnxruntime finds in a pooling, where the ONNX library counts others.

ceil_mode = 1               before opset 22 the library counts a last window that begins behind
                            the image and the margin before it; onnxruntime has none there
auto_pad = SAME_*, d > 1    the library has as many windows as without dilations d; onnxruntime
                            pads as without them, and has as many as fit
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_SAME = (b"SAME_UPPER", b"SAME_LOWER")


def differing_pools(graph: onnx.GraphProto) -> dict[int, onnx.NodeProto]:
    """Return copies of the poolings of `graph` that may be counted otherwise, by position."""
    return {
        position: onnx.NodeProto.FromString(node.SerializeToString())
        for position, node in enumerate(graph.node)
        if node.domain == "" and node.op_type in _POOLS and _may_differ(_attributes(node))
    }


def count_as_onnxruntime(
    graph: onnx.GraphProto, pools: Mapping[int, onnx.NodeProto], found: onnx.GraphProto
) -> bool:
    """Let inference of `graph` find as many windows of `pools` as onnxruntime does.

    They become windows, one beside the other, of such a size or with such a margin that there are
    as many. `found` is what was inferred of `graph`; sizes that are open there stay so. Return
    whether anything changed.
    """
    infos = {info.name: info for info in (*found.input, *found.value_info, *found.output)}
    changed = False
    for position, pool in pools.items():
        image, counted = (_image(infos.get(name)) for name in (pool.input[0], pool.output[0]))
        if image is None or counted is None:
            continue
        counts = _counts(image, _attributes(pool))
        if counts != counted and min(counts) > 0:
            changed = True
            node = graph.node[position]
            node.ClearField("attribute")
            more = [count - size for count, size in zip(counts, image, strict=True)]
            kernel = [1 + max(-extra, 0) for extra in more]
            pads = [0] * len(image) + [max(extra, 0) for extra in more]
            for name, content in (("kernel_shape", kernel), ("pads", pads)):
                node.attribute.append(onnx.helper.make_attribute(name, content))
    return changed


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def _may_differ(given: Mapping[str, object]) -> bool:
    dilated = any(step > 1 for step in _integers(given, "dilations"))
    return bool(given.get("ceil_mode")) or (dilated and given.get("auto_pad") in _SAME)


def _integers(given: Mapping[str, object], name: str, default: Sequence[int] = ()) -> Sequence[int]:
    found = given.get(name)
    return [int(item) for item in found] if isinstance(found, list) and found else default


def _image(info: onnx.ValueInfoProto | None) -> list[int] | None:
    """Return the sizes after the batch and the channels, None if one is open."""
    dims = [] if info is None else info.type.tensor_type.shape.dim[2:]
    known = [dim.dim_value for dim in dims if dim.HasField("dim_value")]
    return known if known and len(known) == len(dims) else None


def _counts(image: Sequence[int], given: Mapping[str, object]) -> list[int]:
    """Return how many windows onnxruntime has along each axis of an image."""
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
