"""Weights as small whole numbers: what they stand for is near what they were made of."""

from __future__ import annotations

import numpy as np
import pytest

from sambac.numerics.integers import MIDDLE, by_channel, in_blocks, relative_error


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("rows", [32, 128, 100, 1])
def test_blocks_are_within_half_a_step(bits: int, block: int, rows: int) -> None:
    matrix = np.random.default_rng(0).standard_normal((rows, 300)).astype(np.float32)
    coded = in_blocks(matrix, bits, block)
    count = -(-rows // block)
    assert coded.codes.shape == (300, count, block * bits // 8)
    assert coded.scales.shape == (300, count)
    found = coded.matrix()
    assert found.shape == matrix.shape
    steps = np.repeat(np.abs(coded.scales), block, axis=1).T[:rows]
    # The largest magnitude has the lowest code, so that the highest one is a step short of it; of 4
    # bits, steps may be a fifth smaller, and the largest numbers off by what that leaves out.
    off, most = np.abs(found - matrix), {8: 1, 4: 3}[bits]
    assert np.all(off <= steps * (most + 1e-5))
    assert np.mean(off <= steps * (0.5 + 1e-5)) > 0.93


def test_four_bits_have_the_least_squared_error_of_their_shares() -> None:
    matrix = np.random.default_rng(0).standard_normal((64, 300)).astype(np.float32)
    low, high = matrix.min(0), matrix.max(0)
    largest = np.where(-low >= high, low, high) / -8

    def squares(share: float) -> np.ndarray:
        steps = largest * np.float32(share)
        return np.square(matrix - np.clip(np.rint(matrix / steps), -8, 7) * steps).sum(0)

    found = np.square(matrix - in_blocks(matrix, 4, 64).matrix()).sum(0)
    least = np.min([squares(share) for share in (1.0, 0.95, 0.9, 0.85, 0.8)], axis=0)
    np.testing.assert_allclose(found, least, rtol=1e-4)
    assert found.sum() < 0.93 * squares(1.0).sum()


def test_the_largest_of_a_block_of_bytes_is_exact() -> None:
    matrix = np.array([[0.5, -3.0], [7.0, 1.0], [0.0, 0.0]], np.float32)
    found = in_blocks(matrix, 8, 32).matrix()
    assert found[1, 0] == 7.0
    assert found[0, 1] == -3.0
    assert np.all(found[2] == 0.0)


@pytest.mark.parametrize("content", [0.0, 1e-45, 3e38])
def test_blocks_of_extreme_numbers(content: float) -> None:
    matrix = np.full((32, 2), content, np.float32)
    found = in_blocks(matrix, 4, 32).matrix()
    assert np.all(np.isfinite(found))
    np.testing.assert_allclose(found, matrix, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("axis", [0, 1])
def test_channels_are_within_half_a_step(axis: int) -> None:
    array = np.random.default_rng(1).standard_normal((5, 7, 3)).astype(np.float32)
    coded = by_channel(array, axis)
    assert coded.codes.dtype == np.uint8
    assert coded.codes.min() >= 1
    shape = [1, 1, 1]
    shape[axis] = -1
    steps = coded.scales.reshape(shape)
    assert np.all(np.abs(coded.array() - array) <= steps * (0.5 + 1e-5))


def test_channels_of_zeros_are_zeros() -> None:
    coded = by_channel(np.zeros((3, 4), np.float32), 1)
    assert np.all(coded.codes == MIDDLE)
    assert np.all(coded.array() == 0)


def test_the_error_is_relative() -> None:
    exact = np.array([3.0, 4.0], np.float32)
    assert relative_error(exact + np.float32(0.5), exact) == pytest.approx(0.5 * 2**0.5 / 5)
    assert relative_error(np.zeros(2, np.float32), np.zeros(2, np.float32)) == 0
