"""Transposed convolutions whose result is longer than onnxruntime lets it be.

PyTorch takes an output padding below the stride or below the dilation, onnxruntime one below the
stride alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_convolution

from .operators import constant, op, rank, reshaped, sizes


def convolution(
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> ir.Value:
    """Convolve `x` [N, C, ...] with `weight`, of as many axes; the axis N may be missing.

    An output padding adds places at the end of each axis of a transposed convolution: there its
    margin is as much smaller, and what is beyond all windows is the bias alone.
    """
    axes = rank(weight) - 2
    spread = [list(given) * (axes if len(given) == 1 else 1) for given in (stride, output_padding)]
    steps, extra = spread
    if not transposed or all(more < step for more, step in zip(extra, steps, strict=True)):
        result: ir.Value = aten_convolution(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
        return result
    alone = rank(x) == axes + 1
    before = list(padding) * (axes if len(padding) == 1 else 1)
    beyond = [max(more - pad, 0) for more, pad in zip(extra, before, strict=True)]
    result = op.ConvTranspose(
        op.Unsqueeze(x, [0]) if alone else x,
        weight,
        strides=steps,
        pads=[*before, *(max(pad - more, 0) for more, pad in zip(extra, before, strict=True))],
        dilations=list(dilation) * (axes if len(dilation) == 1 else 1),
        group=groups,
        kernel_shape=list(sizes(weight)[2:]),
    )
    if any(beyond):
        margins = [*[0] * (axes + 2), 0, 0, *beyond]
        result = op.Pad(result, constant(np.asarray(margins, np.int64)))
    if bias is not None:
        result = op.Add(result, reshaped(bias, (*sizes(bias), *[1] * axes)))
    return op.Squeeze(result, [0]) if alone else result
