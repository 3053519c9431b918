"""Gradients of sampling an image at the points of a grid."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest
from gradient_check import Case, check_against_torch, check_finite_differences
from torch.nn import functional

from sambac.ops import undifferentiable

RNG = np.random.default_rng(8)
COARSE = "the reference evaluator places points in float32"


def sample(label, image, points, mode="linear", padding="zeros", aligned=0, reach=1.3):
    """A sample of GridSample, some of its points outside the image."""
    grid = RNG.uniform(-reach, reach, size=(image[0], *points, len(points)))
    modes = {"linear": "bilinear", "nearest": "nearest"}

    def run(x, grid):
        return functional.grid_sample(x, grid, modes[mode], padding, bool(aligned))

    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    return Case("GridSample", (RNG.normal(size=image), grid), run, attributes, label=label,
                without_finite_differences=COARSE)  # fmt: skip


METHODS = itertools.product(["linear", "nearest"], ["zeros", "border", "reflection"], [0, 1])
CASES = [
    sample(f"{mode}, {padding}, {aligned}", (2, 3, 4, 5), (3, 4), mode, padding, aligned)
    for mode, padding, aligned in METHODS
] + [
    sample("far away", (1, 2, 3, 4), (5, 4), padding="reflection", reach=6),
    sample("volume", (2, 3, 3, 4, 2), (2, 3, 2)),
    sample("volume, reflection", (1, 2, 3, 4, 2), (2, 3, 2), padding="reflection", reach=3),
    sample("one row", (2, 3, 1, 5), (3, 4), padding="reflection", aligned=1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_central_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_torch(case: Case):
    check_against_torch(case)


def test_cubic_interpolation_is_refused():
    assert undifferentiable(ir.node("GridSample", [], {"mode": "linear"})) is None
    refusal = undifferentiable(ir.node("GridSample", [], {"mode": "cubic"}))
    assert refusal is not None
    assert "use linear" in refusal
