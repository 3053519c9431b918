"""Average pooling with a divisor of its own, which the exporter forgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.nn import aten_avg_pool2d, aten_avg_pool3d

from .operators import op

_EXPORTED: dict[int, Callable[..., ir.Value]] = {2: aten_avg_pool2d, 3: aten_avg_pool3d}


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
        if ceil_mode:  # windows over the end are divided by what they hold
            raise NotImplementedError("average pooling with ceil_mode and divisor_override")
        size = math.prod(kernel_size) ** (axes if len(kernel_size) == 1 else 1)
        return op.Mul(_EXPORTED[axes](x, *window, True), size / divisor_override)

    return translate
