"""The parts of operands, beside masks of bits, and the formats without blocks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sambac.numerics import (
    FIDELITIES,
    FORMATS,
    SOURCE_A,
    SOURCE_B,
    parts,
    rounded,
    truncated,
)

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
rows = arrays.arrays(np.float32, 30, elements=numbers)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.234375, (1.1875, 0.046875, 1.234375, 0)),
        (3.140625, (3.125, 0.015625, 3.125, 0.015625)),
    ],
)
def test_the_parts_of_the_tables(value: float, expected: tuple[float, ...]) -> None:
    number = np.array([value], np.float32)
    found = [float(part[0]) for source in (SOURCE_A, SOURCE_B) for part in parts(number, source)]
    assert found == list(expected)


@settings(deadline=None)
@given(rows)
def test_the_parts_are_those_of_masks(x: np.ndarray) -> None:
    def masked(mask: int) -> np.ndarray:
        return (x.view(np.uint32) & np.uint32(mask)).view(np.float32)

    first_a, second_a = parts(x, SOURCE_A)
    first_b, second_b = parts(x, SOURCE_B)
    np.testing.assert_array_equal(first_a, masked(0xFFF80000))
    np.testing.assert_array_equal(second_a, x - masked(0xFFF83FFF))
    np.testing.assert_array_equal(first_b, masked(0xFFFE0000))
    np.testing.assert_array_equal(second_b, x - masked(0xFFFE1FFF))
    np.testing.assert_array_equal(rounded(x, FORMATS["TF32"]), masked(0xFFFFE000))


@settings(deadline=None)
@given(rows)
def test_bfloat16_is_whole_in_all_passes(x: np.ndarray) -> None:
    short = rounded(x, FORMATS["Float16_b"])
    for source in (SOURCE_A, SOURCE_B):
        first, second = parts(short, source)
        np.testing.assert_array_equal(first + second, short)


def test_which_digits_the_passes_of_one_product_take() -> None:
    found = {
        name: (each.digits(SOURCE_A), each.digits(SOURCE_B), each.has_more)
        for name, each in FIDELITIES.items()
    }
    assert found == {
        "LoFi": (5, 7, False),
        "HiFi2": (10, 7, False),
        "HiFi3": (10, 7, True),
        "HiFi4": (10, 11, False),
    }


@pytest.mark.parametrize("fidelity", list(FIDELITIES))
def test_products_of_parts_are_the_passes(fidelity: str) -> None:
    """The two products of HiFi3 are three passes; no other way of adding them up."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((12, 12)).astype(np.float32) for _ in range(2))
    (a1, a2), (b1, b2) = parts(a, SOURCE_A), parts(b, SOURCE_B)
    passes = [(a1, b1), (a2, b1), (a1, b2), (a2, b2)]
    count = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}[fidelity]
    expected = sum(x.astype(np.float64) * y for x, y in passes[:count])
    each = FIDELITIES[fidelity]
    first = truncated(a, each.digits(SOURCE_A)) * truncated(b, each.digits(SOURCE_B)).astype(float)
    found = first + (a1.astype(np.float64) * b2 if each.has_more else 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@settings(deadline=None)
@given(rows)
def test_formats_of_single_numbers(x: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        half = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(rounded(x, FORMATS["Float16"]), half)
    brain = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(rounded(x, FORMATS["Float16_b"]), brain)
    assert rounded(x, FORMATS["Float32"]) is x


def test_the_small_format_cuts_and_saturates() -> None:
    x = np.array([1.99, -1.26, 2**-14, 2.0**-14 * 0.99, 2**17, -np.inf, 98304, 0, np.nan])
    found = rounded(x.astype(np.float32), FORMATS["Lf8"])
    top = 1.75 * 2**16
    expected = [1.75, -1.25, 2**-14, 0, top, -top, 98304, 0, np.nan]
    np.testing.assert_array_equal(found, expected)
