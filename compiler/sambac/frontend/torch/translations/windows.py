"""Windows over images: convolutions, pooling, and the padding around them.

Transposed convolutions may be longer than onnxruntime lets them be: PyTorch takes an output padding
below the stride or below the dilation, onnxruntime one below the stride alone.
Of poolings the exporter forgets something: a divisor, which of several equals is taken. After
padding that also cuts, onnxruntime may find nothing to repeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch
from onnxscript.function_libs.torch_lib.ops.core import aten_convolution
from onnxscript.function_libs.torch_lib.ops.nn import aten_avg_pool2d, aten_avg_pool3d, aten_pad
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .limits import first_along
from .operators import constant, merged, op, rank, reshaped, several, sizes

_EXPORTED: dict[int, Callable[..., ir.Value]] = {2: aten_avg_pool2d, 3: aten_avg_pool3d}


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


def average_pool(axes: int) -> Callable[..., ir.Value]:
    """Return the translation of pooling over windows of 2 or 3 `axes`."""

    def translate(
        x: ir.Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> ir.Value:
        """Return the means of the windows, or their sums divided by `divisor_override`."""
        window = (kernel_size, stride, padding, ceil_mode)
        if divisor_override is None:
            return _EXPORTED[axes](x, *window, count_include_pad)
        by = math.prod(kernel_size) ** (axes if len(kernel_size) == 1 else 1) / divisor_override
        if not ceil_mode:
            return op.Mul(_EXPORTED[axes](x, *window, True), by)
        edges = (kernel_size, stride or kernel_size, padding)
        kernel, steps, before = (list(v) * (axes if len(v) == 1 else 1) for v in edges)
        return op.Mul(_whole_means(x, kernel, steps, before), by)

    return translate


def _whole_means(
    x: ir.Value, kernel: Sequence[int], steps: Sequence[int], padding: Sequence[int]
) -> ir.Value:
    """Return the means of windows, the last of which may reach over the end, of zeros there.

    It begins in `x` or in the margin before; onnxruntime would divide it by what it holds.
    """
    axes = len(kernel)
    ends = []
    image = sizes(x, *range(-axes, 0))
    for size, width, step, before in zip(image, kernel, steps, padding, strict=True):
        last = -(-(size + 2 * before - width) // step) * step
        last -= step if last >= size + before else 0
        ends.append(max(last + width - size - before, 0))
    alone = rank(x) == axes + 1
    margins = constant(np.asarray([0, 0, *padding, 0, 0, *ends], np.int64))
    padded = op.Pad(op.Unsqueeze(x, [0]) if alone else x, margins)
    means = op.AveragePool(padded, kernel_shape=list(kernel), strides=list(steps))
    return op.Squeeze(means, [0]) if alone else means


def adaptive_average_pool(x: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """Return the means of as many windows of `x` as its last axes shall have elements.

    Windows of one size lie side by side; others begin at i n / count, rounded down, and end at
    (i + 1) n / count, rounded up.
    """
    axes = len(output_size)
    image = sizes(x, *range(-axes, 0))
    pairs = [*zip(image, output_size, strict=True)]
    even = [size // count if size % count == 0 else 1 for size, count in pairs]
    alone = rank(x) == axes + 1
    result = x
    if any(size > 1 for size in even):
        batch = op.Unsqueeze(x, [0]) if alone else x
        means = op.AveragePool(batch, kernel_shape=even, strides=even)
        result = op.Squeeze(means, [0]) if alone else means
    for axis, (size, count) in enumerate(pairs, rank(x) - axes):
        if size % count:
            ends = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
            parts = [op.Slice(result, [begin], [end], [axis]) for begin, end in ends]
            result = op.Concat(*(op.ReduceMean(p, [axis], keepdims=1) for p in parts), axis=axis)
    return result


def adaptive_max_pool(axes: int) -> Callable[..., tuple[ir.Value, ir.Value]]:
    """Return the translation of pooling over 1 to 3 `axes` to a number of windows of equal size."""

    def translate(x: ir.Value, output_size: Sequence[int]) -> tuple[ir.Value, ir.Value]:
        """Return the first of the largest elements of the windows, and where they lie."""
        image = sizes(x, *range(-axes, 0))
        wanted = list(output_size) * (axes if len(output_size) == 1 else 1)
        if math.prod(wanted) == 1:
            found, at = first_along("ReduceMax")(merged(x, axes), rank(x) - axes, True)
            new = list(range(rank(x) - axes + 1, rank(x)))
            return (op.Unsqueeze(found, new), op.Unsqueeze(at, new)) if new else (found, at)
        if any(size % count for size, count in zip(image, wanted, strict=True)):
            raise NotImplementedError("adaptive pooling to sizes that divide no image")
        kernel = [size // count for size, count in zip(image, wanted, strict=True)]
        return _pooled(x, kernel, rank(x) == axes + 1, math.prod(image))

    return translate


def _pooled(
    x: ir.Value, kernel: Sequence[int], alone: bool, plane: int
) -> tuple[ir.Value, ir.Value]:
    """Return the largest elements of windows side by side, and their places in a plane."""
    batch = op.Unsqueeze(x, [0]) if alone else x
    window = {"kernel_shape": kernel, "strides": kernel}
    found = op.MaxPool(batch, **window)
    _, at = several.MaxPool(batch, **window)[:2]
    at = op.Mod(at, constant(np.asarray(plane, np.int64)))
    return (op.Squeeze(found, [0]), op.Squeeze(at, [0])) if alone else (found, at)


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
