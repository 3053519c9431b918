"""Numbers and tables as text."""

from __future__ import annotations

import pytest

from pef.text import (
    human_bytes,
    human_count,
    human_quantity,
    human_size,
    human_time,
    name_text,
    plural,
    ranges,
    sentence_lines,
    shape_text,
    table,
    wrap,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (602112, "588 KiB"),
        (1048575, "1.00 MiB"),
        (25_000_000, "23.8 MiB"),
        (64 * 10**9, "59.6 GiB"),
        (1 << 60, "1024 PiB"),
    ],
)
def test_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0, "0 us"), (28.489, "28.5 us"), (999.9, "1 ms"), (1340.0, "1.34 ms"), (2.5e6, "2.5 s")],
)
def test_times(microseconds: float, text: str) -> None:
    assert human_time(microseconds) == text


@pytest.mark.parametrize(
    ("count", "shape", "text"),
    [
        (4096, [4, 256], "4.00 KiB"), (0, [4, 0], "0 B"), (4, [], "4 B"),
        (0, ["batch", 3], "open"), (0, [None, 3], "open"), (0, None, "open"), (0, ["n", 0], "0 B"),
    ],
)  # fmt: skip
def test_sizes(count: int, shape: list[int | str | None] | None, text: str) -> None:
    assert human_size(count, shape) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (524288.0, "B", "512 KiB"), (2e-05, "s", "20 us"), (6.38e14, "FLOP/s", "638 TFLOP/s"),
        (1.8e12, "B/s", "1.8 TB/s"), (1040.0, "units", "1,040"), (0.13, "share", "0.13"),
        (1.485, "streams", "1.485"),
    ],
)  # fmt: skip
def test_quantities(value: float, unit: str, text: str) -> None:
    assert human_quantity(value, unit) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 "), (7, "7 "), (704_000_000, "704 M"), (8.21e9, "8.21 G")]
)
def test_counts(count: int, text: str) -> None:
    assert human_count(count) == text


def test_plurals() -> None:
    assert [plural(n, "call") for n in (0, 1, 1234)] == ["0 calls", "1 call", "1,234 calls"]


def test_ranges() -> None:
    assert ranges([]) == []
    assert ranges([3, 5, 6, 7, 7, 1]) == ["3", "5..7", "7", "1"]


@pytest.mark.parametrize("name", ["conv1", "/layer.0/MatMul:0", "x*y+z", "naïve", "a-b", "a->b"])
def test_plain_names_stay(name: str) -> None:
    assert name_text(name) == name


@pytest.mark.parametrize(
    "name", ["", "-", "->", "a b", 'a"b', "a,b", "a(b)", "a=b", "\x1b[0m", "\u202e"]
)
def test_other_names_are_quoted(name: str) -> None:
    assert name_text(name).startswith('"')
    assert name_text(name).isprintable()


def test_shapes() -> None:
    assert shape_text((1, 3)) == "1x3"
    assert shape_text(()) == "[]"
    assert shape_text(None) == "?"
    assert shape_text(("n", None, 4, "7")) == '[n,?,4,"7"]'


def test_a_table() -> None:
    lines = table(("id", "name"), [("7", "a"), ("10", "long")], right=("id",))
    assert lines == ["  id  name", "  --  ----", "   7  a", "  10  long"]
    assert table(("id",), []) == ["  (none)"]


def test_long_cells_wrap_under_themselves() -> None:
    lines = table(("id", "items"), [("1", "aa bb cc " * 6)], width=44)
    assert lines[3].startswith(" " * 6)
    assert all(len(line) <= 46 for line in lines)
    assert " ".join(line[6:] for line in lines[2:]).split() == ["aa", "bb", "cc"] * 6


def test_wrapping_never_breaks_a_quoted_name() -> None:
    words = 'a "b c d" e "f g"'
    assert wrap(words, 4) == ["a", '"b c d"', "e", '"f g"']
    assert " ".join(wrap(words, 4)) == words


def test_sentences_come_back_whole() -> None:
    text = "An over-long sentence, with a-hyphen and 'quotes\" " + "y" * 90
    assert " ".join(sentence_lines(text, 30)) == text
