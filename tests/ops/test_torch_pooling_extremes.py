"""Poolings with ties, sampling at the edges of images and padding, beside PyTorch.

Left out: pooling of NaN, which onnxruntime takes or leaves by its place. Refused: adaptive pooling
to sizes that do not divide, and training through cubic sampling.
"""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_points import COMPARED, Comparison, Point
from torch_runs import Lambda

import sambac
import sambarun

T = torch.tensor
IMAGE = T([[[[1.0, 1, 2, 2], [1, 3, 3, 2], [0, 0, -1, -1], [5, 5, 5, 5]]]])
# Below what is padded with, where that would count.
LOW = -IMAGE - 6
LINE = T([[[1.0, 1, 2, 2, 0, 0]]])
VOLUME = IMAGE[:, :, None].expand(1, 1, 2, 4, 4).contiguous()
GRID = T([
    [[[-1.0, -1], [1, 1], [0, 0], [0.5, -0.5]], [[2, 2], [-3, 0], [1, 0], [0.33, 0.33]]]
])  # fmt: skip

FAR = T([[[[7.3, -9.1], [0.25, 0.75], [-1.25, 1.75], [100.1, -50.3]]]])

NOWHERE = T([[[[nan, 0], [2, inf], [nan, nan], [0.33, -inf], [-inf, inf], [0.5, -0.5]]]])
EVERYWHERE = T([[[[[nan, 0, 0], [2, inf, 0.5], [0.3, 0.3, -inf], [-1.5, nan, nan]]]]])

_POOLS = {
    "largest": lambda x: F.max_pool2d(x, 2),
    "largest, overlapping": lambda x: F.max_pool2d(x, 3, 1, 1),
    "largest, dilated": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
    "largest, rounded up": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "largest, adaptive": lambda x: F.adaptive_max_pool2d(x, 2),
    "largest, of columns": lambda x: F.adaptive_max_pool2d(x, (1, 2)),
    "largest of all": lambda x: F.adaptive_max_pool2d(x, 1),
    "largest of lines, of all": lambda x: F.adaptive_max_pool1d(x[0], 1),
    "largest of volumes, of all": lambda x: F.adaptive_max_pool3d(x, 1),
    "places of largest": lambda x: _places(torch.cat([x, x], 1), 1),
    "places of largest, two": lambda x: _places(torch.cat([x, x]), 2),
    "mean": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "mean, rounded up": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "mean without padding": lambda x: F.avg_pool2d(
        x, 3, 2, 1, ceil_mode=True, count_include_pad=False
    ),
    "mean, adaptive": lambda x: F.adaptive_avg_pool2d(x, 2),
    "mean, adaptive, uneven": lambda x: F.adaptive_avg_pool2d(x, 3),
    **{
        f"mean of volumes {size}": lambda x, size=size: F.adaptive_avg_pool3d(
            torch.cat([x, x + 1, x - 1])[None], size
        )
        for size in (1, 2, (3, 1, None))
    },
}
_NORMS = {
    f"norm {p}": lambda x, p=p: F.lp_pool2d(torch.cat([x, 0 * x]), p, 2) for p in (1.0, 2.0, 3.0)
} | {"norm of lines": lambda x: F.lp_pool1d(torch.cat([x[0], 0 * x[0]]), 2.0, 2)}


def _places(x: torch.Tensor, size: int) -> torch.Tensor:
    return F.adaptive_max_pool2d(x, size, return_indices=True)[1] + 0 * x.sum()


_MODES = [
    (mode, padding, corners)
    for mode in ("bilinear", "nearest")
    for padding in ("zeros", "border", "reflection")
    for corners in (False, True)
]


_CUBIC = [
    ("bicubic", padding, corners) for padding in ("zeros", "border") for corners in (False, True)
]


def _sampled(mode: str, padding: str, corners: bool) -> Point:
    return Point(
        f"{mode} {padding} {corners}",
        lambda x, grid: F.grid_sample(x, grid, mode, padding, corners),
        (IMAGE, GRID),
    )


# Cut and padded, along the last axis first; some leave nothing of what was there.
_CUTS = [(-1, 2, 1, -2), (-4, 3), (-4, 5, 2, -1), (3, -4, 1, 1), (-2, 3), (2, -5)]

_RESIZES = [
    (mode, size, corners)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")
    for size in ((8, 8), (2, 2), (3, 5), (1, 1))
    for corners in ((True, False) if mode in ("bilinear", "bicubic") else (None,))
]


def _resized(mode: str, size: tuple[int, int], corners: bool | None) -> Point:
    return Point(
        f"{mode} {size} {corners}",
        lambda x: F.interpolate(x, size, mode=mode, align_corners=corners),
        (IMAGE,),
    )


GROUPS: dict[str, list[Point]] = {
    "pooled": [Point(name, f, (x,)) for name, f in _POOLS.items() for x in (IMAGE, LOW)]
    + [
        Point("largest of lines", lambda x: F.max_pool1d(x, 2), (LINE,)),
        Point("largest of volumes", lambda x: F.max_pool3d(x, 2), (VOLUME,)),
    ],
    "norms": [Point(name, f, (IMAGE,)) for name, f in _NORMS.items()],
    "sampled": [_sampled(*mode) for mode in _MODES]
    + [
        Point("far away", lambda x, g: F.grid_sample(x, g, "nearest", "reflection", False),
              (IMAGE[..., :3], FAR)),
        Point("one column", lambda x, g: F.grid_sample(x, g, "nearest", "reflection", False),
              (IMAGE[..., :1], FAR)),
    ],
    "resized": [_resized(*resize) for resize in _RESIZES],
    "padded": [
        Point(mode, lambda x, mode=mode: F.pad(x, (1, 2, 2, 1), mode), (IMAGE,))
        for mode in ("constant", "reflect", "replicate", "circular")
    ] + [
        Point(f"replicate {cut}", lambda x, cut=cut: F.pad(x, (*cut, 0, 0)[:4], "replicate"),
              (IMAGE,))
        for cut in _CUTS
    ] + [Point("reflect", lambda x: F.pad(x, (-2, 3, -1, 0), "reflect"), (IMAGE,))],
}  # fmt: skip


@COMPARED
@pytest.mark.parametrize("name", GROUPS)
def test_forward_and_gradient_at_ties_and_edges(name: str, compared: Comparison) -> None:
    assert compared(GROUPS[name]) == []


def test_the_largest_of_nothing_is_as_the_page_says() -> None:
    """Once this fails, `docs/pytorch.md` need not tell of it any more."""
    nothing = torch.full((1, 1, 4), -inf)
    program = sambac.compile(Lambda(lambda x: F.max_pool1d(x, 2)), inputs=(nothing,))
    with sambarun.load(program, threads=1) as executable:
        (found,) = executable.run({program.graphs[0].inputs[0].name: nothing.numpy()}).values()
    assert (found == np.finfo(np.float32).min).all()


def test_points_that_are_none() -> None:
    """PyTorch itself ends in a fault where it takes gradients at them."""

    def sampled(x: torch.Tensor, grid: torch.Tensor, space: torch.Tensor) -> list[torch.Tensor]:
        pairs = ((x, grid), (x[:, :, None].expand(1, 1, 2, 4, 4), space))
        return [
            F.grid_sample(image, points, *mode)
            for image, points in pairs
            for mode in _MODES + _CUBIC
            if image is x or mode[0] != "bicubic"
        ]

    def total(x: torch.Tensor, grid: torch.Tensor, space: torch.Tensor) -> torch.Tensor:
        return sum(y.nan_to_num().sum() for y in sampled(x, grid, space)[: len(_MODES)])

    inputs = (IMAGE, NOWHERE, EVERYWHERE)
    feeds = {f"args_{at}": tensor.numpy() for at, tensor in enumerate(inputs)}
    with sambarun.load(sambac.compile(Lambda(sampled), inputs=inputs)) as executable:
        found = executable.run(feeds)
    for at, want in enumerate(sampled(*inputs)):
        np.testing.assert_allclose(found[f"output_{at}"], want.numpy(), atol=1e-5, err_msg=f"{at}")
    options = sambac.CompileOptions(train=True, input_grads=("args_0", "args_1"))
    with sambarun.load(sambac.compile(Lambda(total), options, inputs=inputs)) as executable:
        found = executable.run({name: feeds[name] for name in ("args_0", "args_1")})
    assert all(np.isfinite(found[f"{name}__grad"]).all() for name in ("args_0", "args_1"))
