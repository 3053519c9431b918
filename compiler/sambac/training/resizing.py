"""Resizing of opsets before 11, in the words of later ones.

    Upsample(x; scales), Upsample(x, scales), Resize(x, scales)
        ->  Resize(x, -, scales; asymmetric, nearest_mode = floor, or ceil for what shrinks)

which is what onnxruntime computes for the old operators. Converters leave the attributes out, whose
defaults mean another place for each pixel.
"""

from __future__ import annotations

import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError
from sambac.graph.node_facts import text_attribute
from sambac.graph.traversal import all_nodes

FIRST_WITH_MODES = 11


def keep_places(model: ir.Model, name: str) -> None:
    """Let each Resize of `model`, converted from before opset 11, take pixels from where it did.

    Raises `CompileError` where no mode says that: some axes grow while others shrink, or nobody
    knows, and the nearest pixel is asked for.
    """
    for node in all_nodes(model.graph):
        if node.op_type == "Resize" and node.domain == "":
            node.attributes.add(ir.AttrString("coordinate_transformation_mode", "asymmetric"))
            if text_attribute(node, "mode", "nearest") == "nearest":
                node.attributes.add(ir.AttrString("nearest_mode", _nearest(node, name)))


def _nearest(node: ir.Node, name: str) -> str:
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
