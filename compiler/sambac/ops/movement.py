"""Operators that move, copy, select or create elements and compute none."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.nodes import input_at

from .family import Family, each, elements, nothing
from .gradients import gather as gather_gradients
from .gradients import movement as movement_gradients
from .gradients import scatter as scatter_gradients
from .gradients.movement import open_blocks


def _scatter(node: ir.Node) -> int:
    """One operation per update when updates are combined with what they meet, else none."""
    reduction = node.attributes.get("reduction")
    combines = reduction is not None and reduction.as_string() != "none"
    return elements(input_at(node, 2)) if combines else 0


def _overlap(node: ir.Node) -> int:
    """One addition per input element: overlapping blocks are summed."""
    return elements(input_at(node, 0))


_MOVES = """
    BitCast CenterCropPad Compress Concat ConcatFromSequence Constant ConstantOfShape Crop
    DepthToSpace Dropout DynamicSlice Expand EyeLike Flatten Gather GatherElements GatherND Identity
    MemcpyFromHost MemcpyToHost NonZero OneHot Optional OptionalGetElement OptionalHasElement Pad
    Range Reshape ReverseSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase
    SequenceInsert SequenceLength Shape Size Slice SpaceToDepth Split SplitToSequence Squeeze
    TensorScatter Tile Transpose Trilu Unsqueeze
"""
_MICROSOFT_MOVES = """
    BifurcationDetector CropAndResize ExpandDims GatherND NGramRepeatBlock Pad Range Trilu
    UnfoldTensor
"""

_CONSTANT = "Constant ConstantOfShape EyeLike NonZero OptionalHasElement SequenceLength Shape Size"
_CONTAINERS = """
    ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceConstruct SequenceEmpty
    SequenceErase SequenceInsert SplitToSequence
"""
_GONE = "Crop DynamicSlice Scatter"
_LATER = "BitCast TensorScatter"

FAMILY = Family(
    "movement",
    {
        **each(_MOVES, nothing),
        **each("Scatter ScatterElements ScatterND", _scatter),
        **each("Col2Im", _overlap),
        **each(_MICROSOFT_MOVES, nothing, "com.microsoft"),
        **each("ReorderInput ReorderOutput", nothing, "com.microsoft.nchwc"),
    },
    gradients={
        **movement_gradients.GRADIENTS,
        **gather_gradients.GRADIENTS,
        **scatter_gradients.GRADIENTS,
    },
    constant=frozenset(_CONSTANT.split()),
    undifferentiable={
        **dict.fromkeys(_CONTAINERS.split(), "sequences and optional values are no tensors"),
        "Col2Im": open_blocks,
        "Range": "its length depends on its inputs",
        **dict.fromkeys(_GONE.split(), "it is no operator of ONNX any more"),
        **dict.fromkeys(_LATER.split(), "it is younger than the operator set of training"),
    },
)
