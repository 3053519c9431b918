"""What the page of the API shows runs, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pybuda

_PAGE = (Path(__file__).parents[2] / "docs" / "pybuda" / "README.md").read_text("utf-8")


def test_programs_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", _PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(block, names)
    said = capsys.readouterr().out
    assert said.count("(16, 10)") == 3
    before, after = map(float, re.findall(r"from (.*) to (.*)", said)[0])
    assert after < before
    assert said.count("['0.weight', '0.bias'] (10,)") == 2


def test_every_public_name_is_on_the_page() -> None:
    table = _PAGE.partition("## Names")[2]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")]
    named = set(re.findall(r"`([^`]+)`", " ".join(cell for cell, _ in rows)))
    assert named == {*pybuda.__all__} - {"Device", "Module"}  # the bases of others
