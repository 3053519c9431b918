"""Resampling of images: every output element is interpolated between its neighbours."""

from __future__ import annotations

from .family import Family, each, per_output

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
)
