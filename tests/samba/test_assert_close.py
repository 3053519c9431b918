"""Comparing results of the device with those of the host."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.utils import assert_close
from sambaflow.samba.utils.numeric import MAX_BF16_TRUNCATE_NORMAL_REL

_INF, _NAN = float("inf"), float("nan")


def test_what_is_within_the_threshold_is_close() -> None:
    expected = torch.tensor([1.0, -200.0])
    assert_close(expected + 0.01, expected, "x", threshold=0.011)
    assert_close(expected * 1.01, expected, "x", threshold=0.0, rtol=0.0101)
    assert_close(SambaTensor(expected), expected, "x")
    assert_close(torch.tensor([1, 2]), torch.tensor([1, 2]), "labels")
    assert_close(torch.ones(0), torch.ones(0))


def test_the_message_says_how_many_and_where() -> None:
    actual = torch.zeros(2, 3)
    actual[1, 2], actual[0, 1] = 5.0, 0.5
    with pytest.raises(AssertionError) as error:
        assert_close(actual, torch.zeros(2, 3), "out", threshold=0.1)
    assert str(error.value) == (
        "out: 2 of 6 elements (33.3 %) differ by more than 0.1; the most at [1, 2]: 5, expected 0"
    )
    with pytest.raises(AssertionError, match=r"more than 0\.1 \+ 0\.5 \* \|expected\|"):
        assert_close(actual, torch.zeros(2, 3), "out", threshold=0.1, rtol=0.5)


def test_the_relative_part_is_of_what_was_expected() -> None:
    assert_close(torch.tensor([1.0]), torch.tensor([2.0]), threshold=0.0, rtol=0.5)
    with pytest.raises(AssertionError):
        assert_close(torch.tensor([2.0]), torch.tensor([1.0]), threshold=0.0, rtol=0.5)


@pytest.mark.parametrize("limit", [_INF, _NAN, -1, True, "x"])
@pytest.mark.parametrize("name", ["threshold", "rtol"])
def test_with_which_all_or_nothing_would_pass(name: str, limit: object) -> None:
    with pytest.raises(TypeError, match=f"{name} is {limit!r}; expected a number from 0 on"):
        assert_close(torch.ones(1), torch.zeros(1), **{name: limit})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_default_is_wider_for_sixteen_bits(dtype: torch.dtype) -> None:
    exact = torch.tensor([1.0])
    assert_close((exact + 0.01).to(dtype), exact)
    with pytest.raises(AssertionError):
        assert_close(exact + 0.01, exact)


@pytest.mark.parametrize("value", [_INF, -_INF, _NAN])
def test_what_is_not_finite_equals_itself_alone(value: float) -> None:
    odd = torch.tensor([1.0, value])
    assert_close(odd, odd.clone(), rtol=0.1)
    for other in (torch.tensor([1.0, 1.0]), torch.tensor([1.0, -value if value == value else 0])):
        with pytest.raises(AssertionError):
            assert_close(odd, other, threshold=1e30, rtol=0.1)
        with pytest.raises(AssertionError):
            assert_close(other, odd, threshold=1e30, rtol=0.1)


def test_shapes_and_missing_tensors() -> None:
    with pytest.raises(AssertionError, match=r"w: shapes differ, \[1, 2\] and \[2\]"):
        assert_close(torch.ones(1, 2), torch.ones(2), "w")
    with pytest.raises(TypeError, match="w: Tensor and NoneType were given"):
        assert_close(torch.ones(1), None, "w")


def test_a_histogram_is_written_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    actual = torch.tensor([0.0, 0.0, 0.0, 1.0, _NAN])
    with pytest.raises(AssertionError):
        assert_close(actual, torch.zeros(5), "forward output #0", visualize=True)
    lines = (tmp_path / "assert_close" / "forward_output_0.txt").read_text("utf-8").splitlines()
    assert lines[0] == "forward output #0: 5 differences"
    assert lines[1].split()[-2:] == ["3", "#" * 50]
    assert lines[20].split()[-2:] == ["1", "#" * 17]
    assert lines[21] == "not finite: 1"
    assert_close(torch.zeros(2), torch.zeros(2), "zeros", visualize=True)
    assert (tmp_path / "assert_close" / "zeros.txt").is_file()


def test_the_error_of_truncation() -> None:
    values = torch.rand(10_000, generator=torch.Generator().manual_seed(1)) + 1.0
    cut = (values.view(torch.int32) & ~0xFFFF).view(torch.float32)
    worst = float(((values - cut) / values).max())
    assert 0.9 * MAX_BF16_TRUNCATE_NORMAL_REL < worst < MAX_BF16_TRUNCATE_NORMAL_REL
