"""Operators: functions of a name and tensors, with the original's formulas.

Each has one formula, in torch. A program that calls it on tensors gets its values; a module that is
recorded for the device gets them as nodes of a graph, which trains by the same rules as any other.
"""

from __future__ import annotations

# fmt: off
# isort: off
from . import loss as loss
from .convolutions import (
    AvgPool1d, AvgPool2d, Conv2d, Conv2dTranspose, Conv3d, MaxPool1d, MaxPool2d, MaxPool3d,
)
from .eltwise_binary import (
    Add, BinaryStack, Divide, Equal, Greater, GreaterEqual, Heaviside, Less, LessEqual,
    LogicalAnd, Max, Min, Multiply, NotEqual, Power, Subtract, Where,
)
from .eltwise_unary import (
    Abs, Argmax, Buffer, Clip, Constant, Cosine, CumSum, Dropout, Exp, Gelu, Identity, LeakyRelu,
    Log, LogicalNot, Pow, Reciprocal, Relu, Sigmoid, Sine, Sqrt, Tanh,
)
from .matmul import Matmul, SparseMatmul
from .nn import Batchnorm, Layernorm, LogSoftmax, Softmax
from .reduce import GroupedReduceAvg, ReduceAvg, ReduceMax, ReduceSum
from .tm import (
    AdvIndex, Broadcast, BudaPad, BudaUnpad, Concatenate, Dequantize, Embedding, HSlice, HStack,
    Index, IndexCopy, Interleave, Narrow, Pad, PadTile, PixelShuffle, Quantize, Repeat, Requantize,
    Reshape, Resize2d, Resize3d, Select, Squeeze, Stack, Transpose, Unsqueeze, VSlice, VStack,
)
# isort: on
# fmt: on

__all__ = [
    "Abs", "Add", "AdvIndex", "Argmax", "AvgPool1d", "AvgPool2d", "Batchnorm", "BinaryStack",
    "Broadcast", "BudaPad", "BudaUnpad", "Buffer", "Clip", "Concatenate", "Constant", "Conv2d",
    "Conv2dTranspose", "Conv3d", "Cosine", "CumSum", "Dequantize", "Divide", "Dropout",
    "Embedding", "Equal", "Exp", "Gelu", "Greater", "GreaterEqual", "GroupedReduceAvg",
    "HSlice", "HStack", "Heaviside", "Identity", "Index", "IndexCopy", "Interleave",
    "Layernorm", "LeakyRelu", "Less", "LessEqual", "Log", "LogSoftmax", "LogicalAnd",
    "LogicalNot", "Matmul", "Max", "MaxPool1d", "MaxPool2d", "MaxPool3d", "Min", "Multiply",
    "Narrow", "NotEqual", "Pad", "PadTile", "PixelShuffle", "Pow", "Power", "Quantize",
    "Reciprocal", "ReduceAvg", "ReduceMax", "ReduceSum", "Relu", "Repeat", "Requantize",
    "Reshape", "Resize2d", "Resize3d", "Select", "Sigmoid", "Sine", "Softmax", "SparseMatmul",
    "Sqrt", "Squeeze", "Stack", "Subtract", "Tanh", "Transpose", "Unsqueeze", "VSlice",
    "VStack", "Where",
]  # fmt: skip
