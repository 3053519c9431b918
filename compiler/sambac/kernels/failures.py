"""What onnxruntime's kernels fail at when they are run, or end the process over.

They are registered for more than they can compute: for types, sizes and numbers of which a run says
no, or of which none is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from sambac.graph.nodes import float_attribute, input_at, int_attribute, text_attribute
from sambac.graph.value_types import spell

OpKey = tuple[str, str]

# Operands of which onnxruntime reads a number without a look whether there is one: it would read
# what lies behind, or end the process.
_ONE_NUMBER: Mapping[OpKey, tuple[int, ...]] = {
    ("", "Loop"): (0, 1),
    **{("", op_type): (1,) for op_type in ("OneHot", "SequenceAt", "SequenceErase")},
    ("", "SequenceInsert"): (2,),
}
# Operands that say a number for each dimension of a result, or two; inference makes as many.
_LENGTHS: Mapping[OpKey, tuple[int, ...]] = {
    ("", "ConstantOfShape"): (0,),
    ("", "Resize"): (1, 2, 3),
    **{("", op_type): (1,) for op_type in ("Expand", "Pad", "Reshape", "Tile", "Upsample")},
}
_MOST_DIMENSIONS = 1024
# Of operators with which onnxruntime ends the process where the first operand has fewer.
_LEAST_DIMENSIONS: Mapping[OpKey, int] = {("", "DFT"): 2, ("", "STFT"): 2}
_BOOL, _DOUBLE = "tensor(bool)", "tensor(double)"
_HALVES = frozenset({"tensor(float16)", "tensor(bfloat16)"})
_FLOATS = _HALVES | {"tensor(float)", _DOUBLE}
# Of operators that divide by a size, or look at the first of nothing: operands and their axes.
_SOME_ELEMENTS: Mapping[OpKey, Sequence[tuple[int, int]]] = {
    ("", "Attention"): ((1, -3),),  # heads of keys, where they have an axis beside examples
    ("", "GRU"): ((0, 0), (0, 2)),
    ("com.microsoft", "MultiHeadAttention"): ((0, -1),),
    ("com.microsoft", "SkipLayerNormalization"): ((1, 0),),
}


def why_run_fails(node: ir.Node) -> str | None:
    """Return why `node`, which has a kernel, fails when it is run, or None if it does not."""
    if (reason := why_run_kills(node)) is not None:
        return reason
    first = input_at(node, 0)
    return None if first is None else why_type_fails(node, spell(first.type))


def why_type_fails(node: ir.Node, type_: str) -> str | None:
    """Return why `node` fails where its first operand has a type that its kernel is listed for."""
    why = _UNFINISHED.get((node.domain, node.op_type))
    reason = None if why is None else why(node, type_)
    return None if reason is None else f"onnxruntime's CPU kernel has no {reason}"


def _unreduced(node: ir.Node, type_: str) -> str | None:
    reduction = text_attribute(node, "reduction", "none")
    if type_ in _HALVES and reduction != "none":
        return f"reduction {reduction} on 16-bit numbers"
    return f"reduction {reduction} of truths" if type_ == _BOOL and reduction in _EXTREMA else None


def _uncomputed(node: ir.Node, type_: str) -> str | None:
    return "computation in 64 bits" if type_ == _DOUBLE else None


def _uninterpolated(node: ir.Node, type_: str) -> str | None:
    cubic = text_attribute(node, "mode", "nearest") == "cubic" and not int_attribute(
        node, "antialias"
    )
    return "cubic interpolation of whole numbers" if cubic and type_ not in _FLOATS else None


def _undivided(node: ir.Node, type_: str) -> str | None:
    whole = not int_attribute(node, "fmod")
    return "remainder of fractions without fmod = 1" if whole and type_ in _FLOATS else None


_EXTREMA = ("max", "min")
# Their kernels are registered for more types than they can compute: a run fails.
_UNFINISHED: Mapping[OpKey, Callable[[ir.Node, str], str | None]] = {
    ("", "GRU"): _uncomputed,
    ("", "LSTM"): _uncomputed,
    ("", "Mod"): _undivided,
    ("", "Resize"): _uninterpolated,
    ("", "ScatterElements"): _unreduced,
    ("", "ScatterND"): _unreduced,
}


# What `why_run_kills` looks at; of most operators it is asked in vain, and often.
_DEADLY = frozenset((
    *(*_ONE_NUMBER, *_LENGTHS, *_LEAST_DIMENSIONS, *_SOME_ELEMENTS),
    *(("", f"Random{kind}") for kind in ("Normal", "NormalLike", "Uniform", "UniformLike")),
    ("com.microsoft", "QLinearWhere"),
))  # fmt: skip


def why_run_kills(node: ir.Node) -> str | None:
    """Return why onnxruntime would end the process when `node` is run, or None if it would not."""
    if (node.domain, node.op_type) not in _DEADLY:
        return None
    for index in _ONE_NUMBER.get((node.domain, node.op_type), ()):
        if _has_no_element(input_at(node, index)):
            return f"onnxruntime reads a number from operand {index}, which has no elements"
    for index in _LENGTHS.get((node.domain, node.op_type), ()):
        if (length := _length(input_at(node, index))) > _MOST_DIMENSIONS:
            return f"operand {index} says {length} sizes, and no tensor has so many dimensions"
    least = _LEAST_DIMENSIONS.get((node.domain, node.op_type), 0)
    first = input_at(node, 0)
    if first is not None and first.shape is not None and len(first.shape) < least:
        return f"onnxruntime's CPU kernel needs {least} dimensions"
    for index, axis in _SOME_ELEMENTS.get((node.domain, node.op_type), ()):
        if _is_empty_along(input_at(node, index), axis):
            return f"operand {index} has no elements along axis {axis}"
    if node.op_type == "QLinearWhere":
        return _why_no_table(node)
    is_known = not any(attribute.is_ref() for attribute in node.attributes.values())
    return _why_no_distribution(node) if is_known else None


def _why_no_table(node: ir.Node) -> str | None:
    """Return why the kernel, which makes a table before it runs, reads zeros that are not there."""
    known = [value is None or ir.convenience.get_const_tensor(value) for value in node.inputs]
    fits = None in known[7:9] or None not in known[3:7:3]
    return None if fits else "operands 3 and 6 are no constants, though operands 7 and 8 are"


def _is_empty_along(value: ir.Value | None, axis: int) -> bool:
    sizes = () if value is None or value.shape is None else tuple(value.shape)
    return -len(sizes) < axis < len(sizes) and sizes[axis] == 0


def _why_no_distribution(node: ir.Node) -> str | None:
    """Return why nothing can be drawn at random: the C++ library ends the process over that."""
    if node.op_type in ("RandomUniform", "RandomUniformLike"):
        low, high = (float_attribute(node, *item) for item in (("low", 0.0), ("high", 1.0)))
        return None if low <= high else f"no number is drawn between low = {low} and high = {high}"
    if node.op_type in ("RandomNormal", "RandomNormalLike"):
        scale = float_attribute(node, "scale", 1.0)
        return None if scale > 0 else f"its scale is {scale}; onnxruntime wants one above 0"
    return None


def _length(value: ir.Value | None) -> int:
    """Return how many numbers a vector holds, 0 where that is not known."""
    shape = None if value is None else value.shape
    length = shape[0] if shape is not None and len(shape) == 1 else 0
    return length if isinstance(length, int) else 0


def _has_no_element(value: ir.Value | None) -> bool:
    if value is None:
        return False
    constant = ir.convenience.get_const_tensor(value)
    shape = value.shape if constant is None else constant.shape
    return shape is not None and 0 in tuple(shape)
