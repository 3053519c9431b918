"""Fourier transforms and windows."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.nodes import input_at

from .family import POLYNOMIAL, Family, dim, each, elements, per_output
from .gradients import signal as signal_gradients


def _transform(node: ir.Node) -> int:
    """5 * n * log2(length), the count of a radix-2 transform, at most the whole length."""
    signal = input_at(node, 0)
    longest = max((dim(signal, axis) for axis in range(1, 4)), default=0)
    return 5 * elements(signal) * longest.bit_length()


FAMILY = Family(
    "signal",
    {
        **each("DFT STFT", _transform),
        **each("BlackmanWindow HammingWindow HannWindow", per_output(POLYNOMIAL)),
        **each("MelWeightMatrix", per_output(POLYNOMIAL)),
    },
    gradients=signal_gradients.GRADIENTS,
    constant=frozenset({"BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"}),
)
