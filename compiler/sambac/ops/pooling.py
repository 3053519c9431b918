"""Pooling: every output element folds a window of the input."""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from .family import Family, FlopRule, each, elements, nothing, per_input, per_output
from .gradients import pooling as gradients
from .gradients.windows import no_windows


def _window(count: int) -> FlopRule:
    """`count` operations for each element of the window of each output element."""

    def rule(node: ir.Node) -> int:
        kernel = node.attributes.get("kernel_shape")
        return count * elements(node.outputs[0]) * (prod(kernel.as_ints()) if kernel else 1)

    return rule


FAMILY = Family(
    "pooling",
    {
        **each("AveragePool MaxPool", _window(1)),
        **each("LpPool", _window(3)),
        **each("GlobalAveragePool GlobalMaxPool", per_input(1)),
        **each("GlobalLpPool", per_input(3)),
        **each("MaxRoiPool", per_output(4)),
        **each("MaxUnpool", nothing),
        **each("MaxpoolWithMask NhwcMaxPool", _window(1), "com.microsoft"),
        **each("QLinearAveragePool", _window(2), "com.microsoft"),
        **each("QLinearGlobalAveragePool", per_input(2), "com.microsoft"),
        **each("AveragePool MaxPool", _window(1), "com.microsoft.nchwc"),
        **each("GlobalAveragePool GlobalMaxPool", per_input(1), "com.microsoft.nchwc"),
    },
    gradients={
        "AveragePool": gradients.average_pool,
        "GlobalAveragePool": gradients.global_average_pool,
        "GlobalLpPool": gradients.global_lp_pool,
        "GlobalMaxPool": gradients.global_max_pool,
        "LpPool": gradients.lp_pool,
        "MaxPool": gradients.max_pool,
        "MaxUnpool": gradients.max_unpool,
    },
    undifferentiable={
        **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), no_windows),
        "MaxRoiPool": "no kernel of this opset runs it",
    },
)
