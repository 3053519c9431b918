"""Differences between PEFs as lines that fit a terminal of 80 columns."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from pef.report.diff import Difference
from samba_cli.inspecting import diff_lines, diff_text

FILES = sorted((Path(__file__).parents[2] / "compat").rglob("*.pef"))


@pytest.mark.parametrize(("a", "b"), list(pairwise(FILES)), ids=lambda path: path.stem)
def test_every_line_of_stored_files_fits(a: Path, b: Path) -> None:
    differ, (header, *lines) = diff_lines(a, b, as_json=False)
    assert differ
    assert header.endswith("differ:")
    assert [line for line in lines if len(line) > 80] == []


def lines_of(a: object, b: object, field: str = "content", item: str = "w") -> list[str]:
    return list(diff_text([Difference("symbols", item, field, a, b)], "a.pef", "b.pef"))


def test_hashes_are_told_whole() -> None:
    left, right = "ab" * 32, "cd" * 32
    assert lines_of(left, right) == [
        "symbols (1)",
        "  w: content",
        f'    "{left}"',
        f'    -> "{right}"',
    ]


def test_what_is_short_stays_on_its_line() -> None:
    assert lines_of(1, None, "size") == ["symbols (1)", "  w: size: 1 -> nothing"]


@pytest.mark.parametrize("same", [0, 1, 30, 36, 37, 70, 100, 1000])
@pytest.mark.parametrize("wrap", [str, lambda text: [text], lambda text: ["x", [text]]])
def test_what_is_cut_shows_where_it_differs(same: int, wrap) -> None:
    a, b = ("=" * same + tail * 200 for tail in "ab")
    *_, left, right = lines_of(wrap(a), wrap(b))
    assert "a" in left
    assert "b" in right
    assert max(len(left), len(right)) <= 80


def test_many_names_are_wrapped_and_a_long_one_stays_whole() -> None:
    names = [f"layer.{number}.attention.weight" for number in range(8)] + ["n" * 90]
    rows = [Difference("symbols", name, "", "present", None) for name in names]
    lines = list(diff_text(rows, "a.pef", "b.pef"))
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(line.strip() for line in lines[1:]) == (
        f"only in a.pef (9): {' '.join(names[:8])} ..."
    )
    assert "n" * 90 in "".join(diff_text(rows[8:], "a.pef", "b.pef"))
