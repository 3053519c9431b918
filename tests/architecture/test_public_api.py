"""The public names and signatures are what the snapshot says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_FOLDER = Path(__file__).parent


def test_public_api_is_as_reviewed() -> None:
    command = [sys.executable, str(_FOLDER / "public_api.py")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    stored = (_FOLDER / "public_api.txt").read_text("utf-8")
    assert found == stored, (
        "a public name changed; if that is wanted, run "
        "`python tests/architecture/public_api.py > tests/architecture/public_api.txt`"
    )
