"""Damaged models and forged PEFs are served or refused; a fault of ours would be seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("script", "count"), [("damaged", 208), ("forged", 132)])
def test_harm_is_refused(script: str, count: int, tmp_path: Path) -> None:
    done = run(FUZZ / f"{script}.py", "--seed=0", f"--count={count}", f"--crashes={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("script", ["damaged", "forged"])
def test_much_harm_is_refused(script: str, tmp_path: Path) -> None:
    done = run(FUZZ / f"{script}.py", "--seed=2000000", "--count=2500", f"--crashes={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr


# Children are this script, too: in it `BODY` is what a case does.
SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, FUZZ)
from supervised import main
def case(seed, path):
    path.write_bytes(b"x")
    BODY
sys.exit(main(case, Path(__file__)))
"""


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("raise KeyError(3)", "internal error"),
        ("os._exit(7)", "ends the process with code 7"),
        ("os.kill(os.getpid(), 11)", "ends the process with code -11"),
        ("return 'refused'", "refused"),
    ],
)
def test_every_outcome_is_told(body: str, outcome: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("FUZZ", repr(str(FUZZ))).replace("BODY", body))
    done = run(script, "--seed=5", "--count=2", f"--crashes={tmp_path}")
    assert f"{{'{outcome}': 2}}" in done.stdout, done.stdout + done.stderr
    assert done.returncode == (0 if outcome == "refused" else 1)
    kept = {path.name for path in tmp_path.glob("seed-*")}
    assert kept == (set() if outcome == "refused" else {"seed-5", "seed-6"})
