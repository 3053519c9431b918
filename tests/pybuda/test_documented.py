"""What the page of the API shows runs, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pybuda

_PAGE = (Path(__file__).parents[2] / "docs" / "pybuda" / "README.md").read_text("utf-8")


def test_programs_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", _PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(block, names)
    assert capsys.readouterr().out.count("(16, 10)") == 3


def test_every_public_name_is_on_the_page() -> None:
    table = _PAGE.partition("## Names")[2]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    named = set(re.findall(r"`([^`]+)`", " ".join(cell for cell, _ in rows)))
    assert named == {*pybuda.__all__} - {"Device", "Module"}  # the bases of others
