"""Operators of pybuda over rows and volumes, of integers, tiles and groups, as `pybuda_cases`."""

from __future__ import annotations

import numpy as np
import torch
from numpy import ndarray as Array
from pybuda_cases import Case, drawn, unary

import pybuda
from pybuda import op

ROWS, IMAGES = drawn(2, 3, 10), drawn(1, 8, 3, 5)
VOLUMES, FILTERS, BIAS = drawn(1, 4, 5, 6, 7), drawn(6, 2, 3, 2, 3), drawn(6)
MATRIX = drawn(1, 1, 40, 6)
TABLE, PLACES = drawn(7, 5), np.array([4, 0, 6])
CHANNELS = [abs(drawn(8)) + 0.5 for _ in range(4)]
SCALES = np.array([0.02, 0.05, 0.1], "float32")
THIRDS = SCALES / (SCALES[:1] * 3)
BYTES = np.arange(-15, 15, dtype="int8").reshape(1, 3, 10)
FAR = drawn(1, 3, 10) * 5
SPARSE = np.where(drawn(5, 7) > 0.8, drawn(5, 7), 0)


def windows(x: Array, size: tuple[int, ...], stride: int) -> Array:
    """(N, C, *sizes) as (N, C, *places, *size)."""
    axes = tuple(range(2, x.ndim))
    found = np.lib.stride_tricks.sliding_window_view(x, size, axes)
    return found[(slice(None), slice(None), *(slice(None, None, stride) for _ in axes))]


def wider(x: Array, sides: tuple[tuple[int, int], ...], value: float = 0.0) -> Array:
    return np.pad(x, ((0, 0), (0, 0), *sides), constant_values=value)


def conv3d(x: Array, sides: tuple[tuple[int, int], ...], stride: int, apart: int = 1) -> Array:
    """In two groups."""
    depth, height, width = ((size - 1) * apart + 1 for size in FILTERS.shape[2:])
    seen = windows(wider(x, sides), (depth, height, width), stride)[..., ::apart, ::apart, ::apart]
    halves = [
        np.einsum("nczyxijk,ocijk->nozyx", seen[:, 2 * g : 2 * g + 2], FILTERS[3 * g : 3 * g + 3])
        for g in (0, 1)
    ]
    return np.concatenate(halves, 1) + BIAS[:, None, None, None]


def bilinear(x: Array, sizes: tuple[int, int]) -> Array:
    """Corners stay where they are."""
    for axis, size in ((2, sizes[0]), (3, sizes[1])):
        at = np.linspace(0, x.shape[axis] - 1, size)
        low = np.minimum(at.astype(int), x.shape[axis] - 2)
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = x.take(low, axis) * (1 - part) + x.take(low + 1, axis) * part
    return x


def repeated(x: Array, times: int, *axes: int) -> Array:
    for axis in axes:
        x = np.repeat(x, times, axis)
    return x


def normalized(x: Array, w: Array, b: Array, mean: Array, variance: Array) -> Array:
    w, b, mean, variance = (item[:, None, None] for item in (w, b, mean, variance))
    return (x - mean) / np.sqrt(variance + 1e-3) * w + b


def tiles(x: Array, rows: int, columns: int) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (0, rows), (0, columns)))


CASES = {
    "Conv3d": Case(
        lambda x, w, b: op.Conv3d("", x, w, b, groups=2),
        (VOLUMES, FILTERS, BIAS),
        conv3d(VOLUMES, ((1, 1), (1, 0), (1, 1)), 1),
    ),
    "Conv3d six sides": Case(
        lambda x, w, b: op.Conv3d("", x, w, b, 2, padding=(0, 1, 1, 0, 2, 1), groups=2),
        (VOLUMES, FILTERS, BIAS),
        conv3d(VOLUMES, ((2, 1), (1, 0), (0, 1)), 2),
    ),
    "Conv3d triple": Case(
        lambda x, w, b: op.Conv3d("", x, w, b, padding=(1, 0, 2), groups=2),
        (VOLUMES, FILTERS, BIAS),
        conv3d(VOLUMES, ((1, 1), (0, 0), (2, 2)), 1),
    ),
    "Conv3d dilated": Case(
        lambda x, w, b: op.Conv3d("", x, w, b, padding=0, dilation=2, groups=2),
        (VOLUMES, FILTERS, BIAS),
        conv3d(VOLUMES, ((0, 0),) * 3, 1, 2),
    ),
    "MaxPool3d": unary(
        "MaxPool3d",
        lambda x: windows(wider(x, ((1, 1),) * 3, -np.inf), (3, 3, 3), 2).max((-1, -2, -3)),
        VOLUMES,
        kernel_size=3,
        stride=2,
    ),
    "MaxPool3d dilated": unary(
        "MaxPool3d",
        lambda x: windows(
            wider(x, ((0, 0), (0, 1), (0, 0)), -np.inf), (3, 3, 3), 2
        )[..., ::2, ::2, ::2].max((-1, -2, -3)),
        VOLUMES,
        kernel_size=2,
        stride=2,
        padding=0,
        dilation=2,
        ceil_mode=True,
    ),
    "MaxPool1d": unary(
        "MaxPool1d",
        lambda x: windows(wider(x, ((1, 1),), -np.inf), (3,), 2).max(-1),
        ROWS,
        kernel_size=3,
        stride=2,
        padding=1,
    ),
    "MaxPool1d dilated": unary(
        "MaxPool1d",
        lambda x: windows(wider(x, ((0, 1),), -np.inf), (3,), 2)[..., ::2].max(-1),
        ROWS,
        kernel_size=2,
        stride=2,
        dilation=2,
        ceil_mode=True,
    ),
    "AvgPool1d": unary(
        "AvgPool1d", lambda x: windows(wider(x, ((1, 1),)), (3,), 1).mean(-1), ROWS, kernel_size=3
    ),
    "AvgPool1d of elements": unary(
        "AvgPool1d",
        lambda x: np.nanmean(windows(wider(x, ((1, 2),), np.nan), (5,), 2), -1),
        ROWS,
        kernel_size=5,
        stride=2,
        padding=1,
        ceil_mode=True,
        count_include_pad=False,
    ),
    "Resize2d": unary("Resize2d", lambda x: repeated(x, 2, 2, 3), IMAGES, sizes=(6, 10)),
    "Resize2d down": unary(
        "Resize2d", lambda x: x[..., ::3, ::3], VOLUMES[:, 0, :, :, :6], sizes=(2, 2)
    ),
    "Resize2d linear": unary(
        "Resize2d",
        lambda x: bilinear(x.transpose(0, 3, 1, 2), (6, 10)).transpose(0, 2, 3, 1),
        IMAGES.transpose(0, 2, 3, 1).copy(),
        sizes=(6, 10),
        method="bilinear",
        align_corners=True,
        channel_last=True,
    ),
    "Resize3d": unary(
        "Resize3d", lambda x: repeated(x, 2, 2, 3, 4), VOLUMES, sizes=(10, 12, 14)
    ),
    "PixelShuffle": unary(
        "PixelShuffle",
        lambda x: x.reshape(1, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 6, 10),
        IMAGES,
        upscale_factor=2,
    ),
    "Narrow": unary(
        "Narrow", lambda x: x[..., 2:6], ROWS, dim=-1, start=2, length=4, original_length=10
    ),
    "PadTile": unary("PadTile", lambda x: tiles(x, 24, 0), MATRIX, dim=-2, original_length=40),
    "PadTile columns": unary(
        "PadTile", lambda x: tiles(x, 0, 26), MATRIX, dim=3, original_length=6
    ),
    "BudaPad": unary(
        "BudaPad",
        lambda x: np.pad(tiles(x, 24, 0), ((0, 0),) * 2 + ((0, 32), (0, 0)), constant_values=2),
        MATRIX,
        paddings=(1, 0),
        value=2.0,
    ),
    "BudaUnpad": unary(
        "BudaUnpad",
        lambda x: x[..., :40, :6],
        tiles(MATRIX, 56, 0),
        original_length=(40, 6),
        paddings=(1, 0),
    ),
    "GroupedReduceAvg": unary(
        "GroupedReduceAvg",
        lambda x: x.reshape(2, 3, 5, 2).mean(-1),
        ROWS,
        dim=-1,
        groups=5,
    ),
    "GroupedReduceAvg kept": unary(
        "GroupedReduceAvg",
        lambda x: repeated(x.reshape(2, 3, 5, 2).mean(-1), 2, 2),
        ROWS,
        dim=2,
        groups=5,
        keep_dims=True,
    ),
    "Batchnorm": Case(
        lambda x, *s: op.Batchnorm("", x, *s, epsilon=1e-3),
        (IMAGES, *CHANNELS),
        normalized(IMAGES, *CHANNELS),
    ),
    "AdvIndex": Case(lambda x, at: op.AdvIndex("", x, at), (TABLE, PLACES), TABLE[PLACES]),
    "AdvIndex of a row": Case(
        lambda x, at: op.AdvIndex("", x, at), (TABLE, PLACES[None]), TABLE[PLACES][None]
    ),
    "IndexCopy": Case(
        lambda x, at, new: op.IndexCopy("", x, at, new, 0),
        (TABLE, np.array([5, 1]), TABLE[:2] * 3),
        np.stack([*TABLE[:1], TABLE[1] * 3, *TABLE[2:5], TABLE[0] * 3, TABLE[6]]),
    ),
    "SparseMatmul": Case(
        lambda b: op.SparseMatmul("", pybuda.Tensor(torch.from_numpy(SPARSE)), b),
        (TABLE,),
        SPARSE @ TABLE,
    ),
    "Quantize": Case(
        lambda x, s: op.Quantize("", x, s, 3, 1, torch.int8),
        (FAR, SCALES),
        np.clip(np.rint(FAR / SCALES[:, None]) + 3, -128, 127),
    ),
    "Quantize unsigned": Case(
        lambda x, s: op.Quantize("", x, s, 100, -1, torch.uint8),
        (FAR, SCALES[:1]),
        np.clip(np.rint(FAR / SCALES[0]) + 100, 0, 255),
    ),
    "Dequantize": Case(
        lambda x, s: op.Dequantize("", x, s, 3, 1),
        (BYTES, SCALES),
        (BYTES.astype("float32") - 3) * SCALES[:, None],
    ),
    "Dequantize to integers": Case(
        lambda x, s: op.Dequantize("", x, s, 3, 1, torch.int32),
        (BYTES, SCALES),
        np.trunc((BYTES.astype("float32") - 3) * SCALES[:, None]),
    ),
    "Requantize": Case(
        lambda x, a, b: op.Requantize("", x, a, b, 0, 1, torch.int8, axis=1),
        (BYTES.astype("int32") * 9, SCALES, SCALES[:1] * 3),
        np.clip(np.rint(BYTES * np.float32(9) * THIRDS[:, None] + 1), -128, 127),
    ),
}  # fmt: skip
