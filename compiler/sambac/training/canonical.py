"""ONNX files in the form that training needs: opset 23, batch statistics, active dropout.

    BatchNormalization(x, s, b, mean, var)
        ->  y, m, v = BatchNormalization(x, s, b, -mean, -var; training_mode = 1, momentum = 0)
            mean' = momentum * mean + (1 - momentum) * m,  var' likewise
    Dropout(x, p)  ->  Dropout(x, p, True)
    Upsample(x; scales), Upsample(x, scales), Resize(x, scales)      of opsets before 11
        ->  Resize(x, -, scales; asymmetric, nearest_mode = floor, or ceil for what shrinks)

where mean and var are buffers, whether or not the file was exported as it trains; the evaluation
graph gets the opposite. onnxruntime writes m and v over what the operator is given as statistics,
which counts for nothing otherwise and must not be the buffers themselves. PyTorch's frontend
exports modules in this form already.

What resizes as opsets before 11 say takes the pixels that onnxruntime takes for it: converters
leave the attributes out, whose defaults mean another place for each pixel.
"""

from __future__ import annotations

import logging

import numpy as np
import onnx_ir as ir
from onnx import defs

from pef.wording import listed
from sambac.errors import CompileError
from sambac.facts import Roles
from sambac.graph.editor import Editor
from sambac.graph.names import value_names
from sambac.graph.nodes import all_nodes, float_attribute, text_attribute

OPSET = 23
# Operators that no converter brings over faithfully from opsets before the given one.
_UNFAITHFUL = {"Hardmax": 13}
# Before this opset a BatchNormalization that trains has two outputs more.
_THREE_STATISTICS = 14
# Before this opset a Pad has its margins and their value as attributes.
_FIRST_WITH_PADS_AS_INPUTS = 11
# Before this opset a Resize has no attributes that say which pixels it takes.
_FIRST_WITH_MODES = 11
# Which inputs of a BatchNormalization are running statistics.
_STATISTICS = {3: "mean", 4: "var"}


def to_training_opset(model: ir.Model, name: str) -> None:
    """Convert `model` to opset 23 in place. Raises `CompileError` for what changes its meaning."""
    opset = model.opset_imports.setdefault("", OPSET)  # gradients are made of these operators
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
            f"{OPSET}, in which training is done; export the model with opset 13 or later"
        )
    if opset == OPSET:
        return
    differing = _differing(model, opset)
    if opset < _THREE_STATISTICS:
        _forget_statistics(model)
    if opset < _FIRST_WITH_PADS_AS_INPUTS:
        _forget_unread_values(model)
    # Imported here: it takes half a second, and inference never needs it.
    from onnxscript import version_converter

    logger = logging.getLogger("onnxscript.version_converter")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of its detours, which concern nobody
    try:
        version_converter.convert_version(model, OPSET, fallback=True)
    finally:
        logger.setLevel(level)
    if model.opset_imports.get("") != OPSET:
        found = f", which has no such {listed(differing, 8, ', ')}" if differing else ""
        raise CompileError(
            f"{name} is of opset {opset} and cannot be converted to opset {OPSET}{found}; training "
            "is done in that one: export the model with it"
        )
    if opset < _FIRST_WITH_MODES:
        _keep_places(model, name)


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
        "is another one since opset 11, and training is done in a later one; export the model "
        "with opset 11 or later"
    )


def _differing(model: ir.Model, opset: int) -> list[str]:
    """Return the types of operators that opset `OPSET` does not have, or has otherwise."""
    types = {node.op_type for node in all_nodes(model.graph) if node.domain == ""}
    return sorted(name for name in types if _since(name, opset) != _since(name, OPSET))


def _since(op_type: str, opset: int) -> int:
    """Return since which opset an operator is as it is in `opset`; 0 where it does not exist."""
    try:
        return int(defs.get_schema(op_type, opset, "").since_version)
    except defs.SchemaError:
        return 0


def _forget_statistics(model: ir.Model) -> None:
    """Drop the statistics that normalisations of old opsets give: training keeps them itself.

    No converter takes such operators. Raises `CompileError` where somebody reads the statistics.
    """
    for node in all_nodes(model.graph):
        if node.op_type == "BatchNormalization" and node.domain == "" and len(node.outputs) > 1:
            _require_unread(node)
            node.resize_outputs(1)


def _forget_unread_values(model: ir.Model) -> None:
    """Drop the value of margins that are copied from the tensor, which no converter takes."""
    for node in all_nodes(model.graph):
        pad = node.op_type == "Pad" and node.domain == ""
        if pad and text_attribute(node, "mode", "constant") != "constant":
            node.attributes.pop("value", None)


def _require_unread(node: ir.Node) -> None:
    """Raise `CompileError` if the statistics that a normalisation gives are results."""
    if any(out.uses() or out.is_graph_output() for out in node.outputs[1:]):
        raise CompileError(
            f"the running statistics of '{node.name}' are results of the model; training keeps "
            "them itself: export the model without them"
        )


def untie_statistics(model: ir.Model) -> None:
    """Give each running statistic that is read elsewhere too a constant of its own.

    Files in which equal constants are stored once have one for a new network's means and biases,
    of which training moves the ones and learns the others. An Identity may stand between.
    """
    fresh = value_names(model)
    constants = model.graph.initializers
    for node in model.graph:
        if node.op_type != "BatchNormalization" or node.domain != "":
            continue
        for index, value in enumerate(node.inputs[3:5], 3):
            if value is None:
                continue
            known = _without_copies(value)
            if known.name in constants and (known is not value or len(value.uses()) > 1):
                name, tensor = fresh(f"{value.name}__{_STATISTICS[index]}"), known.const_value
                assert tensor is not None
                own = ir.Value(name=name, type=known.type, shape=known.shape)
                own.const_value = ir.Tensor(tensor.numpy(), tensor.dtype, name=name)
                constants[str(own.name)] = own
                node.replace_input_with(index, own)


def _without_copies(value: ir.Value) -> ir.Value:
    """Return what `value` is a copy of, by any number of Identities."""
    while (maker := value.producer()) is not None and maker.op_type == "Identity":
        (source,) = maker.inputs
        if source is None:
            break
        value = source
    return value


def train_normalizations(model: ir.Model, roles: Roles) -> dict[str, str]:
    """Let normalisations use batch statistics; return the new outputs by buffer they update."""
    editor = Editor(model, "statistics/")
    buffers = set(roles.buffers)
    updates: dict[str, str] = {}
    for node in tuple(model.graph):
        if node.op_type != "BatchNormalization" or node.domain != "":
            continue
        mean, variance = node.inputs[3], node.inputs[4]
        if mean is None or variance is None:
            continue
        if mean.name in buffers and variance.name in buffers:
            updates.update(_train_normalization(editor, node, mean, variance))
    return updates


def _train_normalization(
    b: Editor, node: ir.Node, mean: ir.Value, variance: ir.Value
) -> dict[str, str]:
    _require_unread(node)
    momentum = float_attribute(node, "momentum", 0.9)
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    node.attributes["momentum"] = ir.AttrFloat32("momentum", 0.0)
    for index, buffer in ((3, mean), (4, variance)):
        node.replace_input_with(index, _own(b, buffer, node))
    if len(node.outputs) < 3:
        b.add_output(node, 2)
    b.go_to_end(b.model.graph)
    updates = {}
    for batch, buffer in zip(node.outputs[1:3], (mean, variance), strict=True):
        old, new = b.op("Mul", buffer, momentum), b.op("Mul", batch, 1.0 - momentum)
        following = b.named(b.op("Add", old, new), f"{buffer.name}__next")
        b.model.graph.outputs.append(following)
        updates[str(buffer.name)] = str(following.name)
    return updates


def to_evaluation(model: ir.Model) -> None:
    """Let normalisations of a file that trains use running statistics, and no Dropout drop."""
    for node in tuple(model.graph):
        if node.domain == "" and node.op_type == "Dropout":
            node.resize_inputs(min(len(node.inputs), 2))
        elif node.domain == "" and node.op_type == "BatchNormalization":
            node.attributes.pop("training_mode", None)
            for batch, buffer in zip(node.outputs[1:], node.inputs[3:], strict=False):
                if buffer is not None:
                    batch.replace_all_uses_with(buffer, replace_graph_outputs=True)
            node.resize_outputs(1)


def _own(b: Editor, buffer: ir.Value, reader: ir.Node) -> ir.Value:
    """Return a value made of `buffer` right before `reader`, which may write over it."""
    b.go_before(reader)
    return b.op("Neg", buffer)


def train_dropouts(model: ir.Model) -> None:
    """Let every Dropout drop."""
    for node in tuple(model.graph):
        if node.op_type == "Dropout" and node.domain == "":
            editor = Editor(model)
            ratio = node.inputs[1] if len(node.inputs) > 1 else None
            if ratio is None:
                ratio = editor.constant(np.asarray(0.5, np.float32), "ratio")
            node.resize_inputs(3)
            node.replace_input_with(1, ratio)
            node.replace_input_with(2, editor.constant(np.asarray(True), "training_mode"))
