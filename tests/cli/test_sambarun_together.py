"""Options of `sambarun` that do not go together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--list", "--input", "x=random"), "--input: --list runs nothing"),
        (("--sections", "FWD", "--list", "--threads", 1), "--sections, --threads: --list runs"),
        (("--list", "--steps", 3), "--steps: --list runs nothing"),
        (("--sections", "0", "--input", "x=random"), "give types, such as FWD; numbers"),
    ],
)
def test_what_does_not_go_together(
    sambarun: Callable, pef_file: Path, words: tuple, told: str
) -> None:
    result = sambarun(pef_file, *words)
    assert (result.code, result.out) == (2, "")
    assert told in result.err


def test_a_list_may_be_quiet(sambarun: Callable, pef_file: Path) -> None:
    assert sambarun(pef_file, "--list", "--quiet").code == 0
