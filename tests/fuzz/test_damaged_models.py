"""Damaged models are compiled or refused; proof that a fault of the compiler's would be seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FUZZ / "damaged.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_damage_is_refused(tmp_path: Path) -> None:
    done = run("--seed=0", "--count=260", f"--crashes={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("first", [1_000_000, 2_000_000])
def test_much_damage_is_refused(first: int, tmp_path: Path) -> None:
    done = run(f"--seed={first}", "--count=2500", f"--crashes={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr


# Children are this script, too: in it `BODY` takes the place of compiling.
SCRIPT = """
import os, sys
sys.path.insert(0, FUZZ)
import damaged, sambac
def compile(path, options):
    BODY
sambac.compile = compile
damaged.__file__ = __file__
sys.exit(damaged.main())
"""


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("raise KeyError(3)", "internal error"),
        ("raise sambac.errors.InternalError('mine')", "internal error"),
        ("os._exit(7)", "ends the process with code 7"),
        ("os.kill(os.getpid(), 11)", "ends the process with code -11"),
        ("raise sambac.CompileError('yours')", "refused"),
    ],
)
def test_every_outcome_is_told(body: str, outcome: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("FUZZ", repr(str(FUZZ))).replace("BODY", body))
    arguments = ["--seed=5", "--count=2", f"--crashes={tmp_path}"]
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )
    assert f"{{'{outcome}': 2}}" in done.stdout, done.stdout + done.stderr
    assert done.returncode == (0 if outcome == "refused" else 1)
    kept = {path.name for path in tmp_path.glob("*.onnx")}
    assert kept == (set() if outcome == "refused" else {"loop-5.onnx", "branches-6.onnx"})
