"""A short run of the fuzzer, and proof that it finds, shrinks and describes a fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent
SEED = 20_000


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FUZZ), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("way", "count"), [("passes", 60), ("O0", 8), ("O1", 8), ("O3", 12)])
def test_random_models_keep_their_numbers(way: str, count: int, tmp_path: Path) -> None:
    done = fuzz(f"--seed={SEED}", f"--count={count}", f"--way={way}", f"--crashes={tmp_path}")
    messages = [path.read_text() for path in sorted(tmp_path.glob("*/message.txt"))]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *messages])


@pytest.mark.long
@pytest.mark.parametrize("way", ["passes", "O0", "O1", "O3"])
def test_many_random_models_keep_their_numbers(way: str, tmp_path: Path) -> None:
    done = fuzz(
        "--seed=100000", "--count=150", "--size=40", f"--way={way}", f"--crashes={tmp_path}"
    )
    messages = [path.read_text() for path in sorted(tmp_path.glob("*/message.txt"))]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *messages])


def test_a_fault_is_found_and_described(tmp_path: Path) -> None:
    """A way that adds 1 to its outputs differs; the folder says how to see that again."""
    program = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(FUZZ)!r})
import differential

sound = differential.plain
def faulty(model, feeds):
    return {{name: array + 1 for name, array in sound(model, feeds).items()}}
differential.WAYS = {{"faulty": faulty}}
print(differential.check(7, 20, "faulty", Path({str(tmp_path)!r})))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    crash = tmp_path / "faulty-seed7-size1"
    assert done.stdout.strip() == str(crash), done.stderr
    assert {path.name for path in crash.iterdir()} == {"model.onnx", "inputs.npz", "message.txt"}
    assert "--seed 7 --count 1 --size 1" in (crash / "message.txt").read_text()
