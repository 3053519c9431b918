"""Normalisations: statistics over some axes, then a scale and a shift."""

from __future__ import annotations

from .family import Family, each, per_input, per_output
from .gradients import normalization as gradients
from .gradients import vector_normalization as vector_gradients
from .gradients.batch_normalization import batch_normalization
from .gradients.group_normalization import group_normalization, instance_normalization
from .gradients.skip_normalization import (
    skip_layer_normalization,
    skip_simplified_layer_normalization,
)

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
    gradients={
        "BatchNormalization": batch_normalization,
        "GroupNormalization": group_normalization,
        "InstanceNormalization": instance_normalization,
        "LRN": vector_gradients.local_response_normalization,
        "LayerNormalization": gradients.layer_normalization,
        "LpNormalization": vector_gradients.lp_normalization,
        "MeanVarianceNormalization": vector_gradients.mean_variance_normalization,
        "RMSNormalization": gradients.rms_normalization,
        "SimplifiedLayerNormalization": gradients.rms_normalization,
        "com.microsoft.SkipLayerNormalization": skip_layer_normalization,
        "com.microsoft.SkipSimplifiedLayerNormalization": skip_simplified_layer_normalization,
    },
)
