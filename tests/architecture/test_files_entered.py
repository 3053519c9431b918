"""Somebody who steps through a compilation meets few files; the numbers only ever go down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).with_name("entered_files.py")


@pytest.mark.parametrize(("kind", "least", "most"), [("inference", 40, 70), ("training", 80, 120)])
def test_a_compilation_enters_few_files(kind: str, least: int, most: int) -> None:
    """A process of its own, in which nothing is known yet; `entered_files.py` says what counts."""
    found = subprocess.run(
        [sys.executable, _SCRIPT, kind], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    files = [line.partition(":")[0] for line in found.stdout.splitlines()]
    assert "compiler/sambac/pipeline.py" in files
    assert least < len(files) <= most, "\n".join(files)
