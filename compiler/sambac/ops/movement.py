"""Operators that move, copy, select or create elements and compute none."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.node_facts import input_at

from .family import Family, each, elements, nothing


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

FAMILY = Family(
    "movement",
    {
        **each(_MOVES, nothing),
        **each("Scatter ScatterElements ScatterND", _scatter),
        **each("Col2Im", _overlap),
        **each(_MICROSOFT_MOVES, nothing, "com.microsoft"),
        **each("ReorderInput ReorderOutput", nothing, "com.microsoft.nchwc"),
    },
)
