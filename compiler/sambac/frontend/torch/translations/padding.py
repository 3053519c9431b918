"""Padding that also cuts, after which onnxruntime may find nothing to repeat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch
from onnxscript.function_libs.torch_lib.ops.nn import aten_pad
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .operators import constant, op, rank, sizes

_OWN = frozenset({"reflect", "replicate"})
"""The modes that repeat elements of what is cut too."""


def pad(
    x: ir.Value, pad: Sequence[int | ir.Value], mode: str = "constant", value: float | None = None
) -> ir.Value:
    """Return `x` with more or fewer elements: `pad` before and after along the last axis first."""
    widths = [width for width in pad if isinstance(width, int)]
    if mode not in _OWN or min(widths, default=0) >= 0:
        result: ir.Value = aten_pad(x, pad, mode, value)
        return result
    if len(widths) < len(pad):
        raise NotImplementedError(f"{mode} padding by {list(pad)} is open; fix what cuts")
    padded = x
    for place in range(len(widths) // 2):
        axis = rank(x) - 1 - place
        (size,) = sizes(x, axis)
        taken = _taken(size, widths[2 * place : 2 * place + 2], mode)
        padded = op.Gather(padded, constant(taken), axis=axis)
    return padded


def _taken(size: int, widths: Sequence[int], mode: str) -> np.ndarray:
    """Return which of `size` elements are where, as PyTorch itself pads their numbers."""
    with unset_fake_temporarily():
        places = torch.arange(size, dtype=torch.float64)[None]
        padded = torch.nn.functional.pad(places, tuple(widths), mode)
        return padded[0].numpy().astype(np.int64)
