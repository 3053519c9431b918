"""How large onnxruntime makes a tensor that is resized by constant scales.

n elements by a scale s are floor(n * s), which the kernel computes in float32 and rounds before,
and the ONNX library in float64: 10 by 2.3 are 23 and 22 elements.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

RESIZING = frozenset({"Resize", "Upsample"})
"""The operators that are counted here."""

_WITHOUT_REGIONS = 2
"""So many inputs are those of opsets before 11, where no region stands before the scales."""


def resize_as_onnxruntime(graph: onnx.GraphProto, found: onnx.GraphProto) -> bool:
    """Let inference of `graph` make what is resized as large as onnxruntime does.

    Operators get scales in the middle of those that give the size. `found` is what was inferred of
    `graph`; sizes that are open there stay so. Return whether anything changed.
    """
    infos = {info.name: info for info in (*found.input, *found.value_info, *found.output)}
    infos |= {item.name: _info(item) for item in graph.initializer}
    held = {item.name: item for item in graph.initializer}
    changed = False
    for node in graph.node:
        scales = held.get(_scales(node)) if node.domain == "" else None
        if scales is None:
            continue
        before, after = (_sizes(infos.get(name)) for name in (node.input[0], node.output[0]))
        factors = numpy_helper.to_array(scales).astype(np.float32)
        axes = _axes(node, len(before))
        if len(axes) != len(factors) or len(after) != len(before):
            continue
        wanted = [
            factor if (size := before[axis]) is None else _middle(size, factor, after[axis])
            for axis, factor in zip(axes, factors, strict=True)
        ]
        if wanted != [*factors]:
            changed = True
            other = numpy_helper.from_array(np.asarray(wanted, np.float32), f"{node.output[0]}__s")
            graph.initializer.append(other)
            node.input[[*node.input].index(scales.name, 1)] = other.name
    return changed


def _middle(size: int, factor: np.float32, counted: int | None) -> np.float32:
    """Return a scale by which both make as many of `size` elements as onnxruntime does by `factor`.

    Where float32 has none it is `factor`.
    """
    made = _made(size, factor)
    if counted is None or made == counted:
        return factor
    middle = np.float32((made + 0.5) / size)
    return middle if made == _made(size, middle) == int(size * float(middle)) else factor


def _made(size: int, factor: np.float32) -> int:
    return int(np.float32(size) * factor)


def _scales(node: onnx.NodeProto) -> str:
    """Return the name of the scales of `node`, "" if it has none, or cuts out a region."""
    if node.op_type not in RESIZING or len(node.input) < _WITHOUT_REGIONS:
        return ""
    given: Mapping[str, onnx.AttributeProto] = {item.name: item for item in node.attribute}
    mode = given.get("coordinate_transformation_mode")
    if mode is not None and mode.s == b"tf_crop_and_resize":
        return ""
    return str(node.input[1 if len(node.input) == _WITHOUT_REGIONS else 2])


def _axes(node: onnx.NodeProto, rank: int) -> list[int]:
    named = next((list(item.ints) for item in node.attribute if item.name == "axes"), None)
    return [*range(rank)] if named is None else [axis % rank for axis in named if rank]


def _sizes(info: onnx.ValueInfoProto | None) -> list[int | None]:
    dims = [] if info is None else info.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]


def _info(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
