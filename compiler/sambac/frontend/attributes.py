"""What has to hold of attributes before a pass, a rule or a foreign library reads one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import onnx_ir as ir

from sambac.graph.traversal import all_nodes
from sambac.kernels.registry import schema

# The least value of integers without which the ONNX library or onnxruntime end the process.
_WINDOWS = ("dilations", "kernel_shape", "strides")
_COUNTS = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool", "MaxUnpool"), _WINDOWS),
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), ("group", *_WINDOWS)),
    "Attention": ("kv_num_heads", "q_num_heads"),
    "DeformConv": ("group", "offset_group", *_WINDOWS),
    "GroupNormalization": ("num_groups",),
}
_LEAST: Mapping[tuple[str, str, str], int] = {
    ("", "GatherND", "batch_dims"): 0,
    **{("", op_type, name): 1 for op_type, names in _COUNTS.items() for name in names},
}
# Those whose square is a divisor must not be so large that 64 bits hold zeros of it.
_MOST: Mapping[tuple[str, str, str], int] = {
    ("", op_type, "blocksize"): 2**31 - 1 for op_type in ("DepthToSpace", "SpaceToDepth")
}
# Libraries keep axes in 32 bits; no tensor has that many.
_AXES = range(-(2**31), 2**31)
# onnxruntime takes any other word for the first one, gradients know no others.
_WORDS: Mapping[tuple[str, str, str], tuple[str, ...]] = {
    ("", op_type, "reduction"): ("none", "add", "mul", "min", "max")
    for op_type in ("ScatterElements", "ScatterND")
}


def odd_attributes(model: ir.Model) -> Iterator[str]:
    """Find attributes that lack, are of another type than their operator wants, or mean nothing."""
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        for node in all_nodes(body):
            where = f"operator {node.op_type} '{node.name or ''}'"
            opset = body.opset_imports.get(node.domain, 1)
            for problem in _odd(node, opset, inside=isinstance(body, ir.Function)):
                yield f"{where} {problem}"


def _odd(node: ir.Node, opset: int, *, inside: bool) -> Iterator[str]:
    """Find what is odd about the attributes of one operator, `inside` of a function or not."""
    found = schema(node.domain, node.op_type, opset)
    known = {} if found is None else found.attributes
    for name, attribute in node.attributes.items():
        if attribute.is_ref() and not inside:
            yield f"has an attribute '{name}' that stands for a parameter, and is in no function"
        elif name in known and _kind(known[name].type.name) != attribute.type.name:
            yield (
                f"has the attribute '{name}' of type {attribute.type.name}; it has to be "
                f"{_kind(known[name].type.name)}"
            )
        elif _is_no_text(attribute):
            yield f"has the attribute '{name}' of {attribute.value!r}, which is no text"
        elif not attribute.is_ref() and _is_deadly(node, attribute):
            yield f"has the attribute '{name}' of {attribute.value}"
        elif not attribute.is_ref() and (words := _other_words(node, attribute)):
            yield f"has the attribute '{name}' of '{attribute.value}'; it has to be {words}"
    for name, wanted in known.items():
        if wanted.required and name not in node.attributes:
            yield f"lacks the attribute '{name}'"


def _kind(wanted: str) -> str:
    """Return the type that an attribute has to be; the bindings have no name for one of them."""
    return wanted if wanted in ir.AttributeType.__members__ else "TYPE_PROTO"


def _is_no_text(attribute: ir.Attr) -> bool:
    """Tell whether what should be text is bytes: so the library keeps what is not UTF-8."""
    if attribute.is_ref():
        return False
    value: object = attribute.value
    if attribute.type == ir.AttributeType.STRINGS:
        return any(not isinstance(text, str) for text in cast(Sequence[object], value))
    return attribute.type == ir.AttributeType.STRING and not isinstance(value, str)


def _is_deadly(node: ir.Node, attribute: ir.Attr) -> bool:
    """Tell whether integers are outside of the range in which libraries live."""
    which = node.domain, node.op_type, attribute.name
    if attribute.name == "axis" and attribute.type == ir.AttributeType.INT:
        return attribute.as_int() not in _AXES
    least, most = _LEAST.get(which), _MOST.get(which)
    if least is None and most is None:
        return False
    several = attribute.type == ir.AttributeType.INTS
    return any(
        (least is not None and n < least) or (most is not None and n > most)
        for n in (attribute.as_ints() if several else (attribute.as_int(),))
    )


def _other_words(node: ir.Node, attribute: ir.Attr) -> str:
    """Return the words that an attribute may be, if it is none of them."""
    words = _WORDS.get((node.domain, node.op_type, attribute.name), ())
    return "" if not words or attribute.as_string() in words else " or ".join(words)
