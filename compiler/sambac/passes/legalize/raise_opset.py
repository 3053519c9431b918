"""ONNX models in a newer opset, with the meaning that they had.

    Upsample(x; scales), Upsample(x, scales), Resize(x, scales)      of opsets before 11
        ->  Resize(x, -, scales; asymmetric, nearest_mode = floor, or ceil for what shrinks)

What resizes as opsets before 11 say takes the pixels that onnxruntime takes for it: converters
leave the attributes out, whose defaults mean another place for each pixel. And of opsets before 21,
with C channels in G groups,

    GroupNormalization(x, scale [G], bias [G])
        ->  GroupNormalization(x, scale', bias'),  scale' [C] = scale, each number C / G times

which converters do where they happen to know C, and with the default of epsilon. Limits of a Clip
and the value of a Pad, which were attributes, become operands of the type of x; converters make
float32 numbers of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import onnx_ir as ir
from onnx import defs

from pef.wording import listed
from sambac.errors import CompileError
from sambac.graph.editor import Editor
from sambac.graph.nodes import all_nodes, input_at, int_attribute, text_attribute

from .infer_shapes import infer

# Operators that no converter brings over faithfully from opsets before the given one.
_UNFAITHFUL = {"Hardmax": 13}
# Before this opset a BatchNormalization that trains has two outputs more.
_THREE_STATISTICS = 14
# Before this opset a GroupNormalization scales groups, not channels.
_SCALE_BY_CHANNEL = 21
# Before this opset the mask of a Dropout that drops nothing is false everywhere, or a number.
_FIRST_WITH_TRUE_MASKS = 12
# Before this opset a Pad has its margins and their value as attributes, and a Clip its limits.
_FIRST_WITH_PADS_AS_INPUTS = 11
# The operands that were numbers of the type of the first one, by operator.
_NUMBERS = {"Clip": (1, 2), "Pad": (2,)}
# Before this opset a Resize has no attributes that say which pixels it takes.
_FIRST_WITH_MODES = 11


def to_opset(model: ir.Model, name: str, wanted: int, purpose: str) -> None:
    """Convert `model` to the opset `wanted` in place; one that names none is of that from now on.

    Raises `CompileError` for what changes its meaning, or cannot be had, with the `purpose` ("...
    is done") of the opset.
    """
    opset = model.opset_imports.setdefault("", wanted)
    lost = sorted(
        {
            node.op_type
            for node in all_nodes(model.graph)
            if node.domain == "" and opset < _UNFAITHFUL.get(node.op_type, 0)
        }
    )
    if lost:
        raise CompileError(
            f"{name} uses {listed(lost)} of opset {opset}, which means something else in opset "
            f"{wanted}, in which {purpose}; export the model with opset 13 or later"
        )
    if opset == wanted:
        return
    differing = _differing(model, opset, wanted)
    if opset < _THREE_STATISTICS:
        _forget_statistics(model)
    if opset < _FIRST_WITH_TRUE_MASKS:
        _forget_masks(model)
    typed: dict[str, ir.DataType] = {}
    if opset < _FIRST_WITH_PADS_AS_INPUTS:
        _forget_unread_values(model)
        typed = _types_of_numbers(model)
    if opset < _SCALE_BY_CHANNEL <= wanted:
        _scale_channels(model, name)
    _convert(model, wanted)
    if model.opset_imports.get("") != wanted:
        found = f", which has no such {listed(differing, 8, ', ')}" if differing else ""
        raise CompileError(
            f"{name} is of opset {opset} and cannot be converted to opset {wanted}{found}; "
            f"{purpose} in that one: export the model with it"
        )
    if opset < _FIRST_WITH_MODES:
        _keep_places(model, name)
    if typed:
        _keep_types(model, typed)


def _convert(model: ir.Model, wanted: int) -> None:
    """Convert `model`, or leave it as it is where no converter can."""
    # Imported here: it takes half a second, and most inference never needs it.
    from onnxscript import version_converter

    logger = logging.getLogger("onnxscript.version_converter")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of its detours, which concern nobody
    try:
        version_converter.convert_version(model, wanted, fallback=True)
    finally:
        logger.setLevel(level)


def _types_of_numbers(model: ir.Model) -> dict[str, ir.DataType]:
    """Return the types that limits and values of margins have to get, by results of operators."""
    found = [
        node for node in all_nodes(model.graph) if node.domain == "" and node.op_type in _NUMBERS
    ]
    if found:
        infer(model)
    types = {str(node.outputs[0].name): node.outputs[0].dtype for node in found}
    return {name: dtype for name, dtype in types.items() if dtype not in (None, ir.DataType.FLOAT)}


def _keep_types(model: ir.Model, typed: Mapping[str, ir.DataType]) -> None:
    """Give the numbers that became operands the types of what they are for."""
    editor = Editor(model)
    for node in all_nodes(model.graph):
        dtype = typed.get(str(node.outputs[0].name))
        if dtype is None or node.domain != "" or node.op_type not in _NUMBERS:
            continue
        editor.go_before(node)
        for index in _NUMBERS[node.op_type]:
            given = input_at(node, index)
            content = None if given is None else ir.convenience.get_const_tensor(given)
            if content is not None and content.dtype != dtype:
                node.replace_input_with(
                    index, editor.constant(content.numpy().astype(dtype.numpy()))
                )


def _keep_places(model: ir.Model, name: str) -> None:
    """Let each Resize of `model`, converted from before opset 11, take pixels from where it did.

    Raises `CompileError` where no mode says that: some axes grow while others shrink, or nobody
    knows, and the nearest pixel is asked for.
    """
    for node in all_nodes(model.graph):
        if node.op_type == "Resize" and node.domain == "":
            node.attributes.add(ir.AttrString("coordinate_transformation_mode", "asymmetric"))
            if text_attribute(node, "mode", "nearest") == "nearest":
                node.attributes.add(ir.AttrString("nearest_mode", _nearest_mode(node, name)))


def _nearest_mode(node: ir.Node, name: str) -> str:
    given = node.inputs[2]
    scales = None if given is None else ir.convenience.get_const_tensor(given)
    if scales is not None:
        if (scales.numpy() >= 1).all():
            return "floor"
        if (scales.numpy() <= 1).all():
            return "ceil"
    factors = "scales of a run" if scales is None else listed([str(x) for x in scales.numpy()])
    raise CompileError(
        f"{name}: '{node.name or node.op_type}' resizes by {factors} to the nearest pixel, which "
        "is another one since opset 11, and the model is needed in a later one; export it with "
        "opset 11 or later"
    )


def _differing(model: ir.Model, opset: int, wanted: int) -> list[str]:
    """Return the types of operators that the opset `wanted` does not have, or has otherwise."""
    types = {node.op_type for node in all_nodes(model.graph) if node.domain == ""}
    return sorted(name for name in types if _since(name, opset) != _since(name, wanted))


def _since(op_type: str, opset: int) -> int:
    """Return since which opset an operator is as it is in `opset`; 0 where it does not exist."""
    try:
        return int(defs.get_schema(op_type, opset, "").since_version)
    except defs.SchemaError:
        return 0


def _forget_statistics(model: ir.Model) -> None:
    """Drop the statistics that normalisations of old opsets give, which nobody reads.

    No converter takes such operators. Raises `CompileError` where somebody reads the statistics.
    """
    for node in all_nodes(model.graph):
        if node.op_type == "BatchNormalization" and node.domain == "" and len(node.outputs) > 1:
            require_unread(node)
            node.resize_outputs(1)


def _forget_masks(model: ir.Model) -> None:
    """Drop the masks that dropouts of old opsets give, which nobody reads.

    Raises `CompileError` where somebody does: since opset 12 they hold something else.
    """
    for node in all_nodes(model.graph):
        if node.op_type == "Dropout" and node.domain == "" and len(node.outputs) > 1:
            if _is_read(node):
                raise CompileError(
                    f"the mask of '{node.name or node.op_type}' is read, which holds something "
                    "else since opset 12; export the model with that opset or a later one"
                )
            node.resize_outputs(1)


def _scale_channels(model: ir.Model, name: str) -> None:
    """Give each normalisation of groups the scale and the bias of each channel.

    Raises `CompileError` where the number of channels is not known.
    """
    found = [
        node
        for node in all_nodes(model.graph)
        if node.op_type == "GroupNormalization" and node.domain == ""
    ]
    if not found:
        return
    infer(model)
    editor = Editor(model)
    for node in found:
        image = input_at(node, 0)
        channels = None if image is None or image.shape is None else image.shape[1]
        groups = int_attribute(node, "num_groups")
        if not isinstance(channels, int) or channels % groups:
            raise CompileError(
                f"{name}: '{node.name or node.op_type}' of an opset before 21 normalises "
                f"{channels} channels in {groups} groups, which are to be equal and known; give "
                "the sizes of all inputs, or export the model with opset 21 or later"
            )
        editor.go_before(node)
        for index in (1, 2):
            column = editor.op("Reshape", node.inputs[index], [groups, 1])
            rows = editor.op("Expand", column, [groups, channels // groups])
            node.replace_input_with(index, editor.op("Reshape", rows, [channels]))


def _forget_unread_values(model: ir.Model) -> None:
    """Drop the value of margins that are copied from the tensor, which no converter takes."""
    for node in all_nodes(model.graph):
        pad = node.op_type == "Pad" and node.domain == ""
        if pad and text_attribute(node, "mode", "constant") != "constant":
            node.attributes.pop("value", None)


def require_unread(node: ir.Node) -> None:
    """Raise `CompileError` if the statistics that a normalisation gives are results."""
    if _is_read(node):
        raise CompileError(
            f"the running statistics of '{node.name}' are results of the model; export the model "
            "without them"
        )


def _is_read(node: ir.Node) -> bool:
    """Tell whether anything reads what `node` gives beside its first result."""
    return any(out.uses() or out.is_graph_output() for out in node.outputs[1:])
