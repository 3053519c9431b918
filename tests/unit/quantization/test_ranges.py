"""Ranges from samples are those of torch's observers, where they bear their names."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.ao.quantization import observer as observers

from sambac.quantization.ranges import OBSERVERS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("offset", [-4.0, 0.0, 4.0])
@pytest.mark.parametrize("name", ["MinMaxObserver", "MovingAverageMinMaxObserver"])
def test_extremes_are_those_of_torch(name: str, offset: float) -> None:
    draw = np.random.default_rng(0)
    seen, theirs = OBSERVERS[name].seen(), getattr(observers, name)()
    for width in (1, 3, 0.5, 2):
        array = (width * draw.standard_normal((2, 50)) + offset).astype(np.float32)
        seen.see(array)
        theirs(torch.from_numpy(array))
    assert OBSERVERS[name].choose is None
    assert seen.low == pytest.approx(min(theirs.min_val.item(), 0.0), rel=1e-6)
    assert seen.high == pytest.approx(max(theirs.max_val.item(), 0.0), rel=1e-6)


@pytest.mark.parametrize("name", OBSERVERS)
def test_what_is_not_finite_is_passed_over(name: str) -> None:
    seen = OBSERVERS[name].seen()
    for array in (np.array([np.nan, np.inf]), np.array([]), np.array([-2.0, np.nan, 3.0])):
        seen.see(array.astype(np.float32))
    assert (seen.low, seen.high) == (-2.0, 3.0)
    seen = OBSERVERS[name].seen()
    seen.see(np.array([np.nan]))
    assert (seen.low, seen.high) == (0.0, 0.0)
