"""Normalisations: statistics over some axes, then a scale and a shift."""

from __future__ import annotations

from .family import Family, each, per_input, per_output

# Mean, difference, square, mean of squares, root and division, scale, shift.
_WITH_STATISTICS = per_input(8)

FAMILY = Family(
    "normalization",
    {
        **each("BatchNormalization", per_input(2)),
        **each("GroupNormalization InstanceNormalization LayerNormalization", _WITH_STATISTICS),
        **each("MeanVarianceNormalization", per_input(6)),
        **each("RMSNormalization SimplifiedLayerNormalization LpNormalization", per_input(5)),
        **each("LRN", per_input(12)),
        **each("SkipLayerNormalization", per_input(9), "com.microsoft"),
        **each("SkipSimplifiedLayerNormalization BranchwiseRMSNorm", per_input(6), "com.microsoft"),
        **each("GatedRMSNorm", per_input(14), "com.microsoft"),
        **each("EmbedLayerNormalization QEmbedLayerNormalization", per_output(10), "com.microsoft"),
    },
)
