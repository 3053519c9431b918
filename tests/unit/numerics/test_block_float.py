"""Block floating point, digit by digit, beside the tables and a converter written in bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sambac.numerics import BLOCK, FORMATS, NumberFormat, decode, encode, rounded

ROW = [1, -0.75, 0.3, 0.1, -0.01, 0.004, 1.999, -1.5, 0, 0.0625, 0.5, 0.33, -0.25, 1e-3, 0.7, -1]
BFP8 = [64, 48, 19, 6, 1, 0, 127, 96, 0, 4, 32, 21, 16, 0, 45, 64]
BFP8_CUT = [64, 48, 19, 6, 0, 0, 127, 96, 0, 4, 32, 21, 16, 0, 44, 64]
BFP4 = [4, 3, 1, 0, 0, 0, 7, 6, 0, 0, 2, 1, 1, 0, 3, 4]
BFP4_CUT = [4, 3, 1, 0, 0, 0, 7, 6, 0, 0, 2, 1, 1, 0, 2, 4]
BFP2 = [1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1]
BFP2_CUT = [1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]
VECTORS = {
    ("Bfp8", "host"): BFP8,
    ("Bfp8", "packer"): BFP8,
    ("Bfp8", "truncate"): BFP8_CUT,
    ("Bfp4", "host"): BFP4,
    ("Bfp4", "packer"): BFP4_CUT,
    ("Bfp4", "truncate"): BFP4_CUT,
    ("Bfp2", "host"): BFP2,
    ("Bfp2", "packer"): BFP2_CUT,
    ("Bfp2", "truncate"): BFP2_CUT,
}
BLOCK_FORMATS = tuple(form for form in FORMATS.values() if form.block)
RULES = ("host", "packer", "truncate")

numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
rows = arrays.arrays(np.float32, st.integers(1, 40), elements=numbers)
some_format = st.sampled_from(BLOCK_FORMATS)
some_rule = st.sampled_from(RULES)


@pytest.mark.parametrize("family", ["", "_b"])
@pytest.mark.parametrize(("name", "rule"), list(VECTORS))
def test_the_magnitudes_of_the_tables(name: str, rule: str, family: str) -> None:
    form = FORMATS[name + family]
    blocks = encode(np.array(ROW, np.float32), form, rule)
    signs = np.where(np.array(ROW) < 0, -1, 1)
    np.testing.assert_array_equal(blocks.magnitudes, signs * VECTORS[name, rule])
    assert blocks.exponents.tolist() == [127 if family else 15]
    assert not np.signbit(blocks.magnitudes[blocks.magnitudes == 0]).any()


def in_bits(block: np.ndarray, form: NumberFormat, rule: str) -> list[float]:
    """Convert one block as the host does, with shifts of bits."""
    pairs = [_exponent_and_mantissa(value, form) for value in block]
    top = max(exponent for exponent, _ in pairs)
    found = []
    for value, (exponent, mantissa) in zip(block, pairs, strict=True):
        drop = 24 - form.digits
        shifted = mantissa >> (top - exponent)
        if rule == "host":
            shifted += 1 << (drop - 1)
        size = min(shifted >> drop, form.most)
        sign = -1 if value < 0 and size else 1
        found.append(sign * size * 2.0 ** (top - form.bias - (form.digits - 1)))
    return found


def _exponent_and_mantissa(value: np.float32, form: NumberFormat) -> tuple[int, int]:
    """Return the exponent with the format's bias, and 24 bits, the leading one included."""
    bits = int(np.float32(value).view(np.uint32)) & 0x7FFFFFFF
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF | 0x800000
    if bits == 0:
        return max(0, form.lowest + form.bias), 0
    moved = exponent - 127 + form.bias
    if form.bias == 127:
        return moved, mantissa
    if moved > 31:
        return 31, 0xFFFFFF
    return (moved, mantissa) if moved >= 0 else (0, 0x800000)


@settings(deadline=None)
@given(arrays.arrays(np.float32, BLOCK, elements=numbers), some_format, some_rule)
def test_it_is_what_shifts_of_bits_give(block: np.ndarray, form: NumberFormat, rule: str) -> None:
    if rule == "packer" and form.digits < 7:
        more = FORMATS["Bfp8_b" if form.bias == 127 else "Bfp8"]
        packed = np.abs(encode(block, more, "host").magnitudes).astype(int)
        cut = np.abs(encode(block, form, rule).magnitudes).astype(int)
        np.testing.assert_array_equal(cut, packed >> (7 - form.digits))
        return
    expected = in_bits(block, form, "host" if rule == "packer" else rule)
    found = rounded(block, form, rule)
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@settings(deadline=None)
@given(rows, some_format, some_rule)
def test_what_is_rounded_stays_as_it_is(row: np.ndarray, form: NumberFormat, rule: str) -> None:
    once = rounded(row, form, rule)
    np.testing.assert_array_equal(rounded(once, form, rule), once)


@settings(deadline=None)
@given(rows, some_format, some_rule)
def test_signs_turn_with_the_numbers(row: np.ndarray, form: NumberFormat, rule: str) -> None:
    found = rounded(row, form, rule)
    np.testing.assert_array_equal(rounded(-row, form, rule), -found)
    assert not ((found < 0) & (row >= 0)).any()
    assert not np.signbit(found[found == 0]).any()


@settings(deadline=None)
@given(rows, some_rule, st.sampled_from([form for form in BLOCK_FORMATS if form.bias == 127]))
def test_errors_are_bounded_by_a_unit_of_the_block(
    row: np.ndarray, rule: str, form: NumberFormat
) -> None:
    blocks = encode(row, form, rule)
    unit = np.ldexp(1.0, blocks.exponents - form.bias - (form.digits - 1))
    error = np.abs(decode(blocks).astype(np.float64) - row)
    bound = np.repeat(unit, BLOCK)[: len(row)]
    assert (error <= bound).all()
    if rule == "host":
        nearly_full = np.abs(row) > (form.most + 0.5) * bound
        assert (error[~nearly_full] <= bound[~nearly_full] / 2).all()


@settings(deadline=None)
@given(rows, rows, some_format, some_rule)
def test_blocks_know_nothing_of_each_other(
    first: np.ndarray, second: np.ndarray, form: NumberFormat, rule: str
) -> None:
    filled = np.pad(first, (0, -len(first) % BLOCK))
    both = rounded(np.concatenate([filled, second]), form, rule)
    np.testing.assert_array_equal(both[: len(first)], rounded(first, form, rule))
    np.testing.assert_array_equal(both[len(filled) :], rounded(second, form, rule))


def test_blocks_go_along_any_axis() -> None:
    form = FORMATS["Bfp4_b"]
    x = np.random.default_rng(0).standard_normal((3, 20, 5)).astype(np.float32)
    for axis in range(3):
        turned = np.moveaxis(rounded(np.moveaxis(x, axis, -1), form), -1, axis)
        np.testing.assert_array_equal(rounded(x, form, axis=axis), turned)
    scalar = np.float32(0.3)
    assert rounded(np.asarray(scalar), form) == rounded(np.full(16, scalar), form)[0]


def test_numbers_that_are_none() -> None:
    x = np.array([np.inf, 1, np.nan, -np.inf], np.float32)
    found = rounded(x, FORMATS["Bfp8_b"])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(x))
    assert found[0] == -found[3] == 127 * 2.0**121
    assert found[1] == 0
    assert rounded(x, FORMATS["Bfp8"])[0] == 127 * 2.0**10
    with pytest.raises(KeyError):
        rounded(x, FORMATS["Bfp8"], "nearest")
