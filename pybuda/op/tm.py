"""Operators that move elements, or change their size or type: the original's manipulations.

Tensors are (..., Z, R, C): depth, rows and columns are their last three dimensions.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from sambahost import manipulations as formulas

from .apply import each, operator

Reshape = each(
    "Reshape",
    "Return the elements, in order, in another shape; one size may be -1.",
    lambda x, shape: torch.reshape(x, tuple(shape)),
    shape="list[int] | tuple[int, ...]",
)
Unsqueeze = each(
    "Unsqueeze", "Return x with a dimension of size 1 more, at `dim`.", torch.unsqueeze, dim="int"
)
Repeat = each(
    "Repeat",
    "Return the tensor `factors` times along each of its dimensions.",
    lambda x, factors: x.repeat(*factors),
    factors="list[int] | tuple[int, ...]",
)
PixelShuffle = each(
    "PixelShuffle",
    "Return images (N, C f f, H, W) as (N, C, H f, W f), f being the factor.",
    functional.pixel_shuffle,
    upscale_factor="int",
)
Transpose = operator(formulas.transpose, "Transpose")
Squeeze = operator(formulas.squeeze, "Squeeze")
HSlice = operator(formulas.h_slice, "HSlice")
VSlice = operator(formulas.v_slice, "VSlice")
HStack = operator(formulas.h_stack, "HStack")
VStack = operator(formulas.v_stack, "VStack")
Index = operator(formulas.index, "Index")
Select = operator(formulas.select, "Select")
Pad = operator(formulas.pad, "Pad")
Concatenate = operator(formulas.concatenate, "Concatenate")
Stack = operator(formulas.stack, "Stack")
Interleave = operator(formulas.interleave, "Interleave")
Broadcast = operator(formulas.broadcast, "Broadcast")
Narrow = operator(formulas.narrow, "Narrow")
PadTile = operator(formulas.pad_tile, "PadTile")
BudaPad = operator(formulas.buda_pad, "BudaPad")
BudaUnpad = operator(formulas.buda_unpad, "BudaUnpad")
Embedding = operator(formulas.embedding, "Embedding")
AdvIndex = operator(formulas.adv_index, "AdvIndex")
IndexCopy = operator(formulas.index_copy, "IndexCopy")
Resize2d = operator(formulas.resize2d, "Resize2d")
Resize3d = operator(formulas.resize3d, "Resize3d")
Quantize = operator(formulas.quantize, "Quantize")
Dequantize = operator(formulas.dequantize, "Dequantize")
Requantize = operator(formulas.requantize, "Requantize")
