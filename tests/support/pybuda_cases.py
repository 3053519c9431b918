"""Operators of pybuda with inputs, and what each must give by a formula in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray as Array

import pybuda
from pybuda import op

_RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Array:
    return _RNG.normal(size=shape).astype("float32")


A, B = drawn(1, 4, 6), drawn(1, 4, 6)
TIES = np.round(A)
CUBE = drawn(1, 4, 6, 8)
IMAGES, WEIGHTS, BIAS = drawn(1, 4, 9, 8), drawn(6, 2, 3, 2), drawn(6)
ROWS = np.array([[3, 0, 2]])
TABLE = drawn(5, 7)
FACTORS, VECTOR = drawn(6, 5), drawn(5)
SCALE, SHIFT = drawn(6), drawn(6)
SCALES, SHIFTS = drawn(4, 1), drawn(4, 1)
FILTERS = drawn(4, 3, 3, 3)


def erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x.astype("float64"))


def softmax(x: Array, dim: int) -> Array:
    e = np.exp(x - x.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def layernorm(x: Array, w: Array, b: Array, dim: int, epsilon: float = 1e-5) -> Array:
    x = x.astype("float64")
    return (x - x.mean(dim, keepdims=True)) / np.sqrt(x.var(dim, keepdims=True) + epsilon) * w + b


def windows(x: Array, size: tuple[int, int], stride: int) -> Array:
    """(N, C, H, W) as (N, C, rows, columns, *size)."""
    found = np.lib.stride_tricks.sliding_window_view(x, size, (2, 3))
    return found[:, :, ::stride, ::stride]


def margins(x: Array, sides: tuple[int, int, int, int], value: float = 0.0) -> Array:
    left, right, top, bottom = sides
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def conv(x: Array, w: Array, b: Array, sides: tuple[int, int, int, int], stride: int) -> Array:
    """In two groups."""
    wide = windows(margins(x, sides), w.shape[-2:], stride)
    halves = [
        np.einsum("ncyxij,ocij->noyx", wide[:, 2 * g : 2 * g + 2], w[3 * g : 3 * g + 3])
        for g in (0, 1)
    ]
    return np.concatenate(halves, 1) + b[:, None, None]


def transposed_conv(x: Array, w: Array, pad: int, stride: int) -> Array:
    n, _, h, width = x.shape
    kh, kw = w.shape[-2:]
    out = np.zeros((n, w.shape[1], (h - 1) * stride + kh, (width - 1) * stride + kw))
    for i in range(h):
        for j in range(width):
            part = np.einsum("nc,coij->noij", x[:, :, i, j], w)
            out[:, :, i * stride : i * stride + kh, j * stride : j * stride + kw] += part
    return out[:, :, pad : out.shape[2] - pad, pad : out.shape[3] - pad]


def sliced(x: Array, dim: int) -> Array:
    """Each of four layers in two halves, one after the other."""
    return np.concatenate([half for z in range(4) for half in np.split(x[:, [z]], 2, dim)], 1)


@dataclass(frozen=True)
class Case:
    """A call of an operator on `inputs`, and what it must give."""

    call: Callable[..., pybuda.Tensor]
    inputs: tuple[Array, ...]
    expected: Array


def unary(name: str, expected: Callable[[Array], Array], x: Array = A, **more: object) -> Case:
    return Case(lambda t: getattr(op, name)("", t, **more), (x,), expected(x))


def binary(name: str, expected: Callable[..., Array], a: Array = A, b: Array = B) -> Case:
    return Case(lambda s, t: getattr(op, name)("", s, t), (a, b), expected(a, b))


CASES = {
    "Abs": unary("Abs", np.abs),
    "Exp": unary("Exp", np.exp),
    "Log": unary("Log", lambda x: np.log(x + 1e-10), abs(A)),
    "Sqrt": unary("Sqrt", np.sqrt, abs(A)),
    "Reciprocal": unary("Reciprocal", lambda x: 1 / (x + 1e-10)),
    "Sigmoid": unary("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": unary("Tanh", np.tanh),
    "Sine": unary("Sine", np.sin),
    "Cosine": unary("Cosine", np.cos),
    "Pow": unary("Pow", lambda x: x**3, exponent=3),
    "Relu": unary("Relu", lambda x: np.maximum(x, 0)),
    "Relu from": unary("Relu", lambda x: x * (x >= 0.5), threshold=0.5),
    "Relu to": unary("Relu", lambda x: np.clip(x, 0, 0.5), threshold=0.5, mode="max"),
    "Relu to less": unary("Relu", lambda x: 0 * x, threshold=-0.5, mode="max"),
    "Dropout": unary("Dropout", lambda x: x, p=0.5, training=False),
    "LeakyRelu": unary("LeakyRelu", lambda x: np.where(x > 0, x, 0.1 * x), alpha=0.1),
    "Gelu": unary("Gelu", lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2)))),
    "Gelu tanh": unary(
        "Gelu",
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        approximate="tanh",
    ),
    "Clip": unary("Clip", lambda x: np.clip(x, -0.5, 0.7), min=-0.5, max=0.7),
    "LogicalNot": unary("LogicalNot", lambda x: (x == 0).astype("float32"), TIES),
    "CumSum": unary("CumSum", lambda x: np.cumsum(x, 1), axis=1),
    "Argmax": unary("Argmax", lambda x: x.argmax(-1, keepdims=True), dim=-1),
    "Argmax of all": unary("Argmax", lambda x: np.full((1, 1, 1), x.argmax())),
    "Identity": unary("Identity", lambda x: x),
    "Identity more": unary(
        "Identity", lambda x: x[:, :, None], unsqueeze="unsqueeze", unsqueeze_dim=2
    ),
    "Buffer": unary("Buffer", lambda x: x),
    "Add": binary("Add", np.add),
    "Add broadcast": binary("Add", np.add, A, drawn(6)),
    "Subtract": binary("Subtract", np.subtract),
    "Multiply": binary("Multiply", np.multiply),
    "Divide": binary("Divide", np.divide),
    "Max": binary("Max", np.maximum),
    "Min": binary("Min", np.minimum),
    "Power": binary("Power", np.power, abs(A), B),
    "Heaviside": binary("Heaviside", np.heaviside, TIES, B),
    "Greater": binary("Greater", np.greater, TIES, np.round(B)),
    "GreaterEqual": binary("GreaterEqual", np.greater_equal, TIES, np.round(B)),
    "Less": binary("Less", np.less, TIES, np.round(B)),
    "LessEqual": binary("LessEqual", np.less_equal, TIES, np.round(B)),
    "Equal": binary("Equal", np.equal, TIES, np.round(B)),
    "NotEqual": binary("NotEqual", np.not_equal, TIES, np.round(B)),
    "LogicalAnd": binary("LogicalAnd", np.logical_and, TIES, np.round(B)),
    "BinaryStack": Case(
        lambda a, b: op.BinaryStack("", a, b, dim=-2),
        (A, B),
        np.stack((A, B), 2).reshape(1, 8, 6),
    ),
    "Where": Case(lambda c, a, b: op.Where("", c, a, b), (TIES, A, B), np.where(TIES != 0, A, B)),
    "Constant": Case(
        lambda a: op.Multiply("", a, op.Constant("", constant=2.5)), (A,), A * np.float32(2.5)
    ),
    "Embedding": Case(lambda t, i: op.Embedding("", t, i), (TABLE, ROWS), TABLE[ROWS]),
    "Matmul": Case(
        lambda a, b, c: op.Matmul("", a, b, bias=c),
        (A, FACTORS, VECTOR),
        A @ FACTORS + VECTOR,
    ),
    "Softmax": unary("Softmax", lambda x: softmax(x, 1), dim=1),
    "Softmax unstable": unary("Softmax", lambda x: softmax(x, -1), dim=-1, stable=False),
    "LogSoftmax": unary("LogSoftmax", lambda x: np.log(softmax(x, -1)), dim=-1),
    "Layernorm": Case(
        lambda x, w, b: op.Layernorm("", x, w, b, epsilon=0.5),
        (A, SCALE, SHIFT),
        layernorm(A, SCALE, SHIFT, -1, 0.5),
    ),
    "Layernorm rows": Case(
        lambda x, w, b: op.Layernorm("", x, w, b, dim=1, epsilon=0.25),
        (A, SCALES, SHIFTS),
        layernorm(A, SCALES, SHIFTS, 1, 0.25),
    ),
    "ReduceSum": unary("ReduceSum", lambda x: x.sum(1, keepdims=True), dim=1),
    "ReduceAvg": unary("ReduceAvg", lambda x: x.mean(-1, keepdims=True), dim=-1),
    "ReduceMax": unary("ReduceMax", lambda x: x.max(-2, keepdims=True), dim=-2),
    "Transpose": unary("Transpose", lambda x: x.swapaxes(1, 2), dim0=-1, dim1=-2),
    "Transpose to integers": unary(
        "Transpose", lambda x: np.trunc(x).swapaxes(1, 2), dim0=1, dim1=2, out_dtype=torch.int32
    ),
    "Reshape": unary("Reshape", lambda x: x.reshape(1, 3, 8), shape=(1, 3, -1)),
    "Unsqueeze": unary("Unsqueeze", lambda x: x[:, :, None], dim=2),
    "Squeeze": unary("Squeeze", lambda x: x[:, :, 0], A[:, :, :1], dim=-1),
    "HSlice": unary(
        "HSlice",
        lambda x: sliced(x, -1),
        CUBE,
        slices=2,
    ),
    "VSlice": unary(
        "VSlice",
        lambda x: sliced(x, -2),
        CUBE,
        slices=2,
    ),
    "HStack": unary(
        "HStack",
        lambda x: np.stack([np.concatenate([x[:, 2 * z], x[:, 2 * z + 1]], -1) for z in (0, 1)], 1),
        CUBE,
        slices=2,
    ),
    "HStack all": unary(
        "HStack", lambda x: np.concatenate([x[:, z : z + 1] for z in range(4)], -1), CUBE
    ),
    "VStack": unary(
        "VStack", lambda x: np.concatenate([x[:, z : z + 1] for z in range(4)], -2), CUBE
    ),
    "VStack pairs": unary("VStack", lambda x: x.reshape(1, 2, 12, 8), CUBE, slices=2),
    "Index": unary("Index", lambda x: x[:, 1:2], dim=1, start=1),
    "Index strides": unary("Index", lambda x: x[..., 1:5:2], dim=-1, start=1, stop=-1, stride=2),
    "Select": unary("Select", lambda x: x[:, :, 2:3], dim=2, index=2),
    "Select strides": unary(
        "Select",
        lambda x: np.concatenate([x[..., 1:3], x[..., 5:6], np.zeros((1, 4, 1))], -1),
        dim=-1,
        index=(1, 2),
        stride=4,
    ),
    "Pad": unary("Pad", lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2))), pad=(1, 2)),
    "Pad reflect": unary(
        "Pad",
        lambda x: np.pad(x, ((0, 0), (0, 0), (3, 4), (1, 2)), "reflect"),
        CUBE,
        pad=(1, 2, 3, 4),
        mode="reflect",
    ),
    "Pad channels": unary(
        "Pad",
        lambda x: np.pad(x, ((0, 0), (3, 4), (1, 2), (0, 0)), "edge"),
        CUBE,
        pad=(1, 2, 3, 4),
        mode="replicate",
        channel_last=True,
    ),
    "Concatenate": Case(
        lambda a, b: op.Concatenate("", a, b, axis=-2), (A, B), np.concatenate((A, B), -2)
    ),
    "Stack": Case(lambda a, b: op.Stack("", a, b, axis=1), (A, B), np.stack((A, B), 1)),
    "Interleave": Case(
        lambda a, b: op.Interleave("", a, b, axis=-1, stride=2),
        (A, B),
        np.stack((A.reshape(1, 4, 3, 2), B.reshape(1, 4, 3, 2)), 3).reshape(1, 4, 12),
    ),
    "Repeat": unary("Repeat", lambda x: np.tile(x, (1, 2, 3)), factors=(1, 2, 3)),
    "Broadcast": unary(
        "Broadcast", lambda x: np.repeat(x, 5, 1), A[:, :1], dim=1, shape=5
    ),
    "Conv2d": Case(
        lambda x, w, b: op.Conv2d("", x, w, b, groups=2),
        (IMAGES, WEIGHTS, BIAS),
        conv(IMAGES, WEIGHTS, BIAS, (1, 0, 1, 1), 1),
    ),
    "Conv2d four sides": Case(
        lambda x, w, b: op.Conv2d("", x, w, b, stride=2, padding=[0, 1, 2, 3], groups=2),
        (IMAGES, WEIGHTS, BIAS),
        conv(IMAGES, WEIGHTS, BIAS, (0, 1, 2, 3), 2),
    ),
    "Conv2d pair": Case(
        lambda x, w, b: op.Conv2d("", x, w, b, padding=(2, 1), groups=2, channel_last=True),
        (IMAGES.transpose(0, 2, 3, 1).copy(), WEIGHTS, BIAS),
        conv(IMAGES, WEIGHTS, BIAS, (1, 1, 2, 2), 1).transpose(0, 2, 3, 1),
    ),
    "Conv2dTranspose": Case(
        lambda x, w: op.Conv2dTranspose("", x, w, stride=2),
        (IMAGES, FILTERS),
        transposed_conv(IMAGES, FILTERS, 1, 2),
    ),
    "MaxPool2d": unary(
        "MaxPool2d",
        lambda x: windows(margins(x, (1, 1, 1, 1), -np.inf), (3, 3), 2).max((-1, -2)),
        IMAGES,
        kernel_size=3,
        stride=2,
    ),
    "AvgPool2d": unary(
        "AvgPool2d",
        lambda x: windows(margins(x, (1, 1, 1, 1)), (2, 2), 2).mean((-1, -2)),
        IMAGES,
        kernel_size=2,
        stride=2,
    ),
    "AvgPool2d of images": unary(
        "AvgPool2d",
        lambda x: (
            windows(margins(x, (1, 1, 1, 1)), (3, 3), 1).sum((-1, -2))
            / windows(margins(np.ones_like(x), (1, 1, 1, 1)), (3, 3), 1).sum((-1, -2))
        ),
        IMAGES,
        kernel_size=3,
        count_include_pad=False,
    ),
}  # fmt: skip
