"""Conversions to and from quantised numbers, and elementwise work on them."""

from __future__ import annotations

from .family import POLYNOMIAL, QUANTIZED, Family, each, nothing, per_output

# Each operand is widened and scaled, the result scaled, shifted and clipped.
_QUANTISED = 6

_FLOPS = {
    **each("DequantizeLinear", per_output(2)),
    **each("QuantizeLinear", per_output(4)),
    **each("DynamicQuantizeLinear", per_output(6)),
    **each("DequantizeLinear", per_output(2), "com.microsoft"),
    **each("QuantizeLinear", per_output(4), "com.microsoft"),
    **each("GatherBlockQuantized", per_output(2), "com.microsoft"),
    **each("QLinearAdd QLinearLeakyRelu QLinearMul", per_output(_QUANTISED), "com.microsoft"),
    **each("QLinearSigmoid QLinearSoftmax", per_output(_QUANTISED + POLYNOMIAL), "com.microsoft"),
    **each("QLinearConcat QLinearWhere", nothing, "com.microsoft"),
}

FAMILY = Family(
    "quantization",
    _FLOPS,
    undifferentiable=dict.fromkeys(_FLOPS, QUANTIZED),
)
