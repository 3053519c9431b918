"""Gradients of resampling, against torch and differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gradient_check import Case, build, check_against_torch, check_finite_differences

from sambac.errors import CompileError

Array = np.ndarray[Any, np.dtype[Any]]

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(1, 2, 3, 4))
ROW = RNG.normal(size=(1, 2, 5))
TORCH_PLACES = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def resize(
    label: str,
    size: tuple[int, ...] = (),
    *,
    x: Array = IMAGE,
    scales: tuple[float, ...] = (),
    mode: str = "nearest",
    torch_options: dict[str, Any] | None = None,
    **attributes: Any,
) -> Case:
    options = torch_options or {}

    def expected(x: torch.Tensor, *_: Any) -> torch.Tensor:
        target = {"scale_factor": scales, **options} if scales else {"size": size, **options}
        return F.interpolate(x, **target)

    inputs: tuple[Array | None, ...] = (x, None, None, np.array([*x.shape[:2], *size]))
    if scales:
        inputs = (x, None, np.array([1.0, 1.0, *scales], np.float32))
    return Case("Resize", inputs, expected, {"mode": mode, **attributes}, label=label,
                constants=(2,))  # fmt: skip


BILINEAR = {"mode": "bilinear", "align_corners": False}
BICUBIC = {"mode": "bicubic", "align_corners": False}
CASES = [
    resize("twice", (6, 8), **TORCH_PLACES),
    resize("thrice and once", scales=(3.0, 1.0), **TORCH_PLACES),
    resize("twice from centres", (6, 8), torch_options={"mode": "nearest-exact"}),
    resize("row", (10,), x=ROW, **TORCH_PLACES),
    resize("nearest", (5, 3), **TORCH_PLACES),
    resize("bilinear", (5, 7), mode="linear", torch_options=BILINEAR),
    resize("bilinear down", (2, 3), mode="linear", torch_options=BILINEAR),
    resize("corners", (5, 7), mode="linear", coordinate_transformation_mode="align_corners",
           torch_options={"mode": "bilinear", "align_corners": True}),
    resize("bicubic", (5, 7), mode="cubic", torch_options=BICUBIC),
    resize("antialias", (2, 3), mode="linear", antialias=1, exclude_outside=1,
           torch_options={**BILINEAR, "antialias": True}),
    Case("Resize", (IMAGE, None, None, np.array([4, 6])),
         lambda x, *_: F.interpolate(x.permute(0, 3, 1, 2), (4, 6), **BILINEAR).permute(0, 2, 3, 1),
         {"mode": "linear", "axes": [1, 2]}, label="axes"),
]  # fmt: skip
REGION = np.array([0.0, 0.0, 0.2, 0.1, 1.0, 1.0, 0.9, 0.6])
# torch has no such regions, and rounds fractional scales first.
WITHOUT_TORCH = [
    resize("fractional scale", scales=(1.3, 0.7), **TORCH_PLACES),
    resize("fractional scale, linear", scales=(1.3, 0.7), mode="linear"),
    Case("Resize", (IMAGE, REGION, None, np.array([1, 2, 3, 3])), lambda x, *_: x,
         {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
         label="region", constants=(1,)),
]  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *WITHOUT_TORCH], ids=str)
def test_gradients_are_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)


def test_repeated_elements_are_summed_by_pooling():
    graph = build(CASES[0], np.float32)
    assert "AveragePool" in {node.op_type for node in graph.model.graph.node}


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_a_scale_that_depends_on_all_axes_is_refused(policy: str):
    case = resize("policy", (8, 8), keep_aspect_ratio_policy=policy)
    with pytest.raises(CompileError, match="its scale depends on all axes"):
        build(case, np.float32)
