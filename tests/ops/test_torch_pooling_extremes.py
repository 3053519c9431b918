"""Poolings with ties, sampling at the edges of images and padding, beside PyTorch.

Left out for lack of agreement at single points: the gradients of a largest element of all (adaptive
pooling to 1, where ties share here) and of `lp_pool2d` at zeros (none here), and sampling of the
nearest pixel by reflection half-way between two. Refused: adaptive pooling to sizes that do not
divide, and training through cubic sampling.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_points import Point, differences

T = torch.tensor
IMAGE = T([[[[1.0, 1, 2, 2], [1, 3, 3, 2], [0, 0, -1, -1], [5, 5, 5, 5]]]])
# Below what is padded with, where that would count.
LOW = -IMAGE - 6
LINE = T([[[1.0, 1, 2, 2, 0, 0]]])
VOLUME = IMAGE[:, :, None].expand(1, 1, 2, 4, 4).contiguous()
GRID = T([
    [[[-1.0, -1], [1, 1], [0, 0], [0.5, -0.5]], [[2, 2], [-3, 0], [1, 0], [0.33, 0.33]]]
])  # fmt: skip

_POOLS = {
    "largest": lambda x: F.max_pool2d(x, 2),
    "largest, overlapping": lambda x: F.max_pool2d(x, 3, 1, 1),
    "largest, dilated": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
    "largest, rounded up": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "largest, adaptive": lambda x: F.adaptive_max_pool2d(x, 2),
    "mean": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "mean, rounded up": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "mean without padding": lambda x: F.avg_pool2d(
        x, 3, 2, 1, ceil_mode=True, count_include_pad=False
    ),
    "mean, adaptive": lambda x: F.adaptive_avg_pool2d(x, 2),
    "mean, adaptive, uneven": lambda x: F.adaptive_avg_pool2d(x, 3),
}
_MODES = [
    (mode, padding, corners)
    for mode in ("bilinear", "nearest")
    for padding in ("zeros", "border", "reflection")
    for corners in (False, True)
    if (mode, padding, corners) != ("nearest", "reflection", False)
]


def _sampled(mode: str, padding: str, corners: bool) -> Point:
    return Point(
        f"{mode} {padding} {corners}",
        lambda x, grid: F.grid_sample(x, grid, mode, padding, corners),
        (IMAGE, GRID),
    )


GROUPS: dict[str, list[Point]] = {
    "pooled": [Point(name, f, (x,)) for name, f in _POOLS.items() for x in (IMAGE, LOW)]
    + [
        Point("largest of lines", lambda x: F.max_pool1d(x, 2), (LINE,)),
        Point("largest of volumes", lambda x: F.max_pool3d(x, 2), (VOLUME,)),
    ],
    "sampled": [_sampled(*mode) for mode in _MODES],
    "padded": [
        Point(mode, lambda x, mode=mode: F.pad(x, (1, 2, 2, 1), mode), (IMAGE,))
        for mode in ("constant", "reflect", "replicate", "circular")
    ],
}


@pytest.mark.parametrize("name", GROUPS)
def test_forward_and_gradient_at_ties_and_edges(name: str) -> None:
    assert differences(GROUPS[name]) == []
