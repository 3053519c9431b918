"""Antialiased interpolation between corners, of which onnxruntime takes another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch
from onnxscript.function_libs.torch_lib.ops.nn import (
    aten__upsample_bicubic2d_aa,
    aten__upsample_bilinear2d_aa,
)
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .operators import constant, op, sizes

_EXPORTED: dict[str, Callable[..., ir.Value]] = {
    "bicubic": aten__upsample_bicubic2d_aa,
    "bilinear": aten__upsample_bilinear2d_aa,
}


def antialiased(mode: str) -> Callable[..., ir.Value]:
    """Return the translation of antialiased interpolation by `mode`, bilinear or bicubic."""

    def translate(
        x: ir.Value,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> ir.Value:
        """Return images [N, C, H, W] of other sizes; between corners as products of matrices."""
        if not align_corners:
            return _EXPORTED[mode](x, output_size, align_corners, scales_h, scales_w)
        height, width = sizes(x, -2, -1)
        rows, columns = (int(size) for size in output_size)
        down = constant(_weights(mode, height, rows, x))
        across = constant(_weights(mode, width, columns, x).T)
        return op.MatMul(op.MatMul(down, x), across)

    return translate


def _weights(mode: str, size: int, wanted: int, like: ir.Value) -> np.ndarray:
    """Return how much each of `wanted` elements has of each of `size`, [wanted, size].

    These are PyTorch's own: what it makes of the columns of the unit matrix.
    """
    assert like.dtype is not None
    with unset_fake_temporarily():
        made = torch.nn.functional.interpolate(
            torch.eye(size, dtype=torch.float64)[None, None],
            size=(wanted, size),
            mode=mode,
            align_corners=True,
            antialias=True,
        )
        return made[0, 0].numpy().astype(like.dtype.numpy())
