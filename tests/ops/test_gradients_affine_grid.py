"""Gradients of AffineGrid."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_check import Case, check_against_torch

torch = pytest.importorskip("torch")
rng = np.random.default_rng(17)


def affine_grid(label: str, *size: int, align: int = 0) -> Case:
    dims = len(size) - 2
    return Case(
        "AffineGrid",
        (np.asarray(rng.normal(size=(size[0], dims, dims + 1))), np.array(size)),
        lambda theta, _: torch.nn.functional.affine_grid(theta, size, align_corners=bool(align)),
        {"align_corners": align},
        label=label,
        without_finite_differences="onnx's reference evaluator computes it in float32",
    )


CASES = [
    affine_grid("2-d", 2, 3, 4, 5),
    affine_grid("2-d-aligned", 2, 3, 4, 5, align=1),
    affine_grid("3-d", 2, 1, 3, 4, 2),
    affine_grid("3-d-aligned", 2, 1, 3, 4, 2, align=1),
    affine_grid("one-row", 1, 2, 1, 4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch(case: Case):
    check_against_torch(case)
