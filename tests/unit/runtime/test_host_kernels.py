"""Dropout masks: their statistics, and on what they depend."""

from __future__ import annotations

import numpy as np
import pytest

from sambarun.device.host_kernels import dropout_mask

SHAPE = (250, 400)


def drawn(rate, seed=1, site=0, step=1, shape=SHAPE):
    mask = np.full(shape, -1, np.float32)
    dropout_mask(rate, seed, site, step, mask)
    return mask


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9, 0.999])
def test_elements_are_dropped_at_the_rate_and_the_others_scaled(rate):
    mask = drawn(rate)
    assert set(np.unique(mask)) <= {np.float32(0), np.float32(1 / (1 - rate))}
    deviation = (rate * (1 - rate) / mask.size) ** 0.5
    assert np.mean(mask == 0) == pytest.approx(rate, abs=5 * deviation)
    assert mask.mean(dtype=np.float64) == pytest.approx(1, abs=5 * deviation / (1 - rate))


def test_neighbours_are_independent():
    dropped = (drawn(0.5) == 0).reshape(-1) - 0.5
    for distance in (1, 2, 3, 400):
        correlation = np.mean(dropped[distance:] * dropped[:-distance]) * 4
        assert abs(correlation) < 5 / dropped.size**0.5


@pytest.mark.parametrize("other", [{"seed": 2}, {"site": 1}, {"step": 2}, {"seed": -1}])
def test_seed_site_and_step_each_make_another_mask(other):
    one, two = drawn(0.5), drawn(0.5, **other)
    assert 0.49 < np.mean(one == two) < 0.51
    np.testing.assert_array_equal(two, drawn(0.5, **other))


def test_the_values_are_the_same_for_ever():
    """Resuming a run with a later version must draw the same masks."""
    mask = drawn(0.25, seed=7, site=3, step=11, shape=(2, 7))
    expected = [[1, 1, 1, 0, 0, 1, 1], [1, 1, 1, 0, 1, 1, 1]]
    np.testing.assert_array_equal(mask, np.array(expected, np.float32) / np.float32(0.75))


@pytest.mark.parametrize(("rate", "value"), [(0.0, 1.0), (1.0, 0.0)])
def test_the_ends_of_the_range(rate, value):
    np.testing.assert_array_equal(drawn(rate), np.full(SHAPE, value, np.float32))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0, 4)])
def test_small_shapes(shape):
    assert drawn(0.5, shape=shape).shape == shape
