"""Gradients of operators that sort and search."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_check import Case, check_against_torch, check_finite_differences

torch = pytest.importorskip("torch")
rng = np.random.default_rng(6)


def top(label: str, shape: tuple[int, ...], k: int, **attributes: int) -> Case:
    """The k first of distinct numbers."""
    x = rng.permutation(int(np.prod(shape))).reshape(shape) / 4.0

    def formula(x, _):
        found = x.topk(k, attributes.get("axis", -1), bool(attributes.get("largest", 1)))
        return found.values

    return Case("TopK", (x, np.array([k])), formula, attributes, outputs=2, label=label)


CASES = [
    top("last", (3, 5), 2),
    top("axis", (4, 3, 2), 3, axis=0),
    top("smallest", (2, 6), 4, largest=0),
    top("all", (7,), 7),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finite_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch(case: Case):
    check_against_torch(case)
