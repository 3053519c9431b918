"""`--expect`: when a result counts as equal, and what is said of a difference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from samba_cli.results import compare, summary
from samba_cli.running import quantile, section_ids


def said(came: object, expected: np.ndarray, rtol: float = 1e-3, atol: float = 1e-5) -> str:
    return compare("y", came, expected, rtol, atol).text


def test_equal_within_tolerance() -> None:
    result = compare("y", np.array([1.0, 2.0]), np.array([1.0005, 2.0]), 1e-3, 0)
    assert result.equal
    assert result.text == "y: as expected (max error 0.0005; at worst 50% of the tolerance)"


def test_the_first_difference_is_named() -> None:
    came = np.array([[1, 2], [3, 4]], np.float32)
    assert said(came, came + np.array([[0, 0], [0.5, 1]])) == (
        "y[1,0] is 3.0, expected 3.5; 2 of 4 elements differ "
        "(max error 1; at worst 200 times the tolerance)"
    )


def test_scalars() -> None:
    assert said(np.array(1, np.float32), np.array(2.0)).startswith("y is 1.0, expected 2.0; 1 of 1")


@pytest.mark.parametrize(
    ("came", "expected", "equal"),
    [
        (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), True),
        (np.array([np.inf]), np.array([-np.inf]), False),
        (np.array([np.nan]), np.array([0.0]), False),
        (np.array([], np.float32), np.array([], np.float32), True),
        (np.array([250], np.uint8), np.array([251], np.uint8), False),
        (np.array([-(2**63)]), np.array([2**63 - 1]), False),
        (np.array([True, False]), np.array([True, True]), False),
        (np.array(["a", "b"], object), np.array(["a", "b"]), True),
        (np.array(["a", "b"], object), np.array(["a", "c"]), False),
        (np.array([1 + 1j]), np.array([1 + 1j]), True),
        (np.array([1 + 1j]), np.array([1 - 1j]), False),
        (np.array([1.5], np.float16), np.array([1.5], np.float64), True),
        (np.array([1.5], ml_dtypes.bfloat16), np.array([1.5], np.float32), True),
        (np.array([1.5], ml_dtypes.bfloat16), np.array([2.5], np.float32), False),
    ],
)
def test_special_values(came: np.ndarray, expected: np.ndarray, equal: bool) -> None:
    assert compare("y", came, expected, 0, 0).equal is equal


def test_large_integers_are_compared_exactly() -> None:
    big = np.array([2**62], np.int64)
    assert not compare("y", big, big + 1, 0, 0).equal


def test_shapes_and_kinds() -> None:
    assert "shape (2,) came, (3,) was expected" in said(np.ones(2), np.ones(3))
    assert "absent came, an array was expected" in said(None, np.ones(3))


def test_summary_of_every_kind() -> None:
    lines = summary(
        {
            "f": np.array([[1.5, np.nan]], np.float32),
            "i": np.array([3, -2], np.int8),
            "e": np.zeros((0, 2), np.float32),
            "s": np.array(["a"], object),
            "b": np.array([1.5, np.nan], ml_dtypes.bfloat16),
            "seq": [np.ones(1)],
            "none": None,
        }
    )
    rows = {line.split()[0]: line for line in lines[2:]}
    assert "1.5 (1 nan)" in rows["f"]
    assert rows["i"].split()[3:5] == ["-2", "3"]
    assert rows["e"].split()[2] == "0x2"
    assert rows["b"].split()[1:7] == ["bfloat16", "2", "1.5", "1.5", "(1", "nan)"]
    assert "sequence of 1" in rows["seq"]
    assert "absent" in rows["none"]


def test_quantiles() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([0, 10], 0.9) == 9
    assert quantile([4], 0.9) == 4


def test_section_ids() -> None:
    assert section_ids(None, 10) is None
    assert section_ids("0, 2,5..7", 10) == [0, 2, 5, 6, 7]


def test_a_small_number_that_is_far_off_in_relation_does_not_read_like_a_failure() -> None:
    text = said(np.array([1e-9, 1.0]), np.array([1e-7, 1.0]))
    assert text == "y: as expected (max error 9.9e-08; at worst 1% of the tolerance)"
    assert said(np.ones(2), np.ones(2), 0, 0) == "y: as expected (max error 0)"
    assert said(np.ones(2), np.ones(2) + 1, 0, 0).endswith("2 of 2 elements differ (max error 1)")
