"""Resampling of images: every output element is interpolated between its neighbours."""

from __future__ import annotations

from .family import Family, each, per_output
from .gradients import grid as grid_gradients
from .gradients import regions as region_gradients
from .gradients import sampling as sampling_gradients

# Four neighbours, each with a weight that is computed, multiplied and added.
_BILINEAR = per_output(12)

FAMILY = Family(
    "sampling",
    {
        **each("GridSample Resize RoiAlign Upsample", _BILINEAR),
        **each("AffineGrid", per_output(6)),
        **each("GridSample", _BILINEAR, "com.microsoft"),
        **each("Upsample", _BILINEAR, "com.microsoft.nchwc"),
    },
    gradients={
        **grid_gradients.GRADIENTS,
        **region_gradients.GRADIENTS,
        **sampling_gradients.GRADIENTS,
    },
    undifferentiable={
        "GridSample": grid_gradients.no_sampling,
        "Resize": sampling_gradients.no_resizing,
        "RoiAlign": region_gradients.no_regions,
    },
)
