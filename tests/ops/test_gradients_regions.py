"""Gradients of pooling regions of images."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from gradient_check import Case, check_against_torch, check_finite_differences

from sambac.ops import undifferentiable

RNG = np.random.default_rng(12)
REGIONS = np.array([
    [1.3, 2.1, 6.2, 5.4],
    [0.2, 0.1, 2.3, 8.7],
    [-4.2, -3.1, 3.3, 2.2],  # part of it is outside
    [2.5, 3.2, 2.6, 3.9],  # smaller than a bin
    [3.1, 3.1, 12.9, 14.2],
    [20.3, 1.2, 25.1, 4.4],  # outside
    [5.1, 6.2, 2.4, 1.1],  # ends before it starts
])  # fmt: skip
IMAGE_OF = np.array([0, 1, 1, 0, 1, 0, 0])


def line(start, extent, bins, size, ratio):
    """What part of each element of an axis the bins of one region read: [bins, size]."""
    rows = torch.zeros(bins, size, dtype=torch.float64)
    each = extent / bins
    count = ratio or int(np.ceil(each))
    for place in range(bins):
        for sample in range(count):
            at = start + place * each + (sample + 0.5) * each / count
            if -1 <= at <= size:
                at = min(max(at, 0), size - 1)
                low = min(int(at), size - 1)
                rows[place, low] += (1 - (at - low)) / count
                rows[place, min(low + 1, size - 1)] += (at - low) / count
    return rows


def pooled(x, rois, images, attributes):
    """PyTorch has no such operator of its own: each region in turn, sample by sample."""
    centred = attributes.get("coordinate_transformation_mode") != "output_half_pixel"
    ratio, scale = attributes.get("sampling_ratio", 0), attributes.get("spatial_scale", 1.0)
    bins = [attributes.get(name, 1) for name in ("output_height", "output_width")]
    found = []
    for region, image in zip(rois.detach().numpy() * scale - 0.5 * centred, images, strict=True):
        rows = []
        for axis in (0, 1):
            start, stop = region[1 - axis], region[3 - axis]
            extent = stop - start if centred else max(stop - start, 1)
            rows.append(line(start, extent, bins[axis], x.shape[2 + axis], ratio))
        found.append(rows[0] @ x[int(image)] @ rows[1].T)
    return torch.stack(found)


def sample(label, sizes=(2, 3, 7, 8), *, regions=REGIONS, image_of=IMAGE_OF, **attributes):
    """A sample on images of `sizes` [N, C, H, W]."""
    inputs = (RNG.normal(size=sizes), regions, image_of)
    return Case(
        "RoiAlign",
        inputs,
        lambda x, rois, images: pooled(x, rois, images, attributes),
        attributes,
        wrt=(0,),
        label=label,
        opset=21,
    )


BINS = {"output_height": 3, "output_width": 2}
UNCENTRED = {"coordinate_transformation_mode": "output_half_pixel"}
CASES = [
    sample("one sample", sampling_ratio=1, **BINS),
    sample("fixed samples", sampling_ratio=3, **BINS),
    sample("from corners", sampling_ratio=2, **UNCENTRED, **BINS),
    sample("as many as fit", **BINS),
    sample("as many as fit, from corners", **UNCENTRED, **BINS),
    sample("scaled", spatial_scale=0.4, output_height=2, output_width=4),
    sample("one bin"),
    sample("many in a bin", (1, 2, 40, 30), regions=REGIONS * 6, image_of=IMAGE_OF * 0),
    sample("image of one element", (2, 1, 1, 1), **BINS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_finite_differences(case: Case):
    check_finite_differences(case)


def test_the_largest_sample_is_refused():
    assert undifferentiable(ir.node("RoiAlign", [], {})) is None
    refusal = undifferentiable(ir.node("RoiAlign", [], {"mode": "max"}))
    assert refusal is not None
    assert "take their mean" in refusal
