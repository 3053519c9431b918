"""Operators: functions of a name and tensors, with the original's formulas.

Each has one formula, in torch. A program that calls it on tensors gets its values; a module that is
recorded for the device gets them as nodes of a graph, which trains by the same rules as any other.
"""

from __future__ import annotations

from .constant import Constant
from .eltwise_binary import (
    Add,
    BinaryStack,
    Divide,
    Equal,
    Greater,
    GreaterEqual,
    Heaviside,
    Less,
    LessEqual,
    LogicalAnd,
    Max,
    Min,
    Multiply,
    NotEqual,
    Power,
    Subtract,
    Where,
)
from .eltwise_unary import (
    Abs,
    Argmax,
    Buffer,
    Clip,
    Cosine,
    CumSum,
    Exp,
    Gelu,
    Identity,
    LeakyRelu,
    Log,
    LogicalNot,
    Pow,
    Reciprocal,
    Relu,
    Sigmoid,
    Sine,
    Sqrt,
    Tanh,
)
from .embedding import Embedding
from .images import AvgPool2d, Conv2d, Conv2dTranspose, MaxPool2d
from .matmul import Matmul
from .nn import Layernorm, LogSoftmax, Softmax
from .reduce import ReduceAvg, ReduceMax, ReduceSum
from .tm import (
    Broadcast,
    Concatenate,
    HSlice,
    HStack,
    Index,
    Interleave,
    Pad,
    Repeat,
    Reshape,
    Select,
    Squeeze,
    Stack,
    Transpose,
    Unsqueeze,
    VSlice,
    VStack,
)

__all__ = [
    "Abs", "Add", "Argmax", "AvgPool2d", "BinaryStack", "Broadcast", "Buffer", "Clip",
    "Concatenate", "Constant", "Conv2d", "Conv2dTranspose", "Cosine", "CumSum", "Divide",
    "Embedding", "Equal", "Exp", "Gelu", "Greater", "GreaterEqual", "HSlice", "HStack", "Heaviside",
    "Identity", "Index", "Interleave", "Layernorm", "LeakyRelu", "Less", "LessEqual", "Log",
    "LogSoftmax", "LogicalAnd", "LogicalNot", "Matmul", "Max", "MaxPool2d", "Min", "Multiply",
    "NotEqual", "Pad", "Pow", "Power", "Reciprocal", "ReduceAvg", "ReduceMax", "ReduceSum", "Relu",
    "Repeat", "Reshape", "Select", "Sigmoid", "Sine", "Softmax", "Sqrt", "Squeeze", "Stack",
    "Subtract", "Tanh", "Transpose", "Unsqueeze", "VSlice", "VStack", "Where",
]  # fmt: skip
