"""Somebody who steps through a compilation or a run meets few files.

Numbers go down; one goes up for a pass or a planner that every such model has to meet.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).with_name("entered_files.py")


@pytest.mark.parametrize(
    ("kind", "least", "most", "through"),
    [
        ("inference", 40, 73, "compiler/sambac/pipeline.py"),
        ("training", 80, 162, "compiler/sambac/pipeline.py"),
        ("running", 4, 6, "runtime/sambarun/executor.py"),
    ],
)
def test_few_files_are_entered(kind: str, least: int, most: int, through: str) -> None:
    """A process of its own, in which nothing is known yet; `entered_files.py` says what counts."""
    found = subprocess.run(
        [sys.executable, _SCRIPT, kind], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    files = [line.partition(":")[0] for line in found.stdout.splitlines()]
    assert through in files
    assert least < len(files) <= most, found.stdout
