"""Equal models and options give equal bytes, wherever and however the compiler runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.models import light, transformers

_COMPILE = """
import sys
import sambac
model, folder, *levels = sys.argv[1:]
for level in levels:
    sambac.compile(model, sambac.CompileOptions(level=level)).save(f"{folder}/{level}.pef")
"""
# For each process: its seed of hashes, its folder, and which level comes after which.
_PROCESSES = (
    ("0", "one", ("O0", "O1", "O3")),
    ("1", "a longer folder", ("O1", "O3", "O0")),
    ("4242", "dreiß'ig", ("O3", "O0", "O1")),
)


def _compile(model: Path, target: Path, seed: str, levels: tuple[str, ...]) -> None:
    """Compile in a process of its own, in the model's folder, at one level after the other."""
    subprocess.run(
        [sys.executable, "-c", _COMPILE, model.name, str(target), *levels],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=model.parent,
        check=True,
    )


@pytest.mark.parametrize("name", [pytest.param("shufflenet", marks=pytest.mark.long), "bert"])
def test_bytes_depend_on_the_model_and_options_alone(name: str, tmp_path: Path) -> None:
    """Also not on what the process compiled before: each level comes first once."""
    small = transformers.Shape(layers=2, hidden=32, heads=2, length=8, vocabulary=64)
    found: dict[str, set[str]] = {"O0": set(), "O1": set(), "O3": set()}
    for seed, folder, levels in _PROCESSES:
        home = tmp_path / folder
        home.mkdir()
        model = light.randomized(name) if name != "bert" else transformers.bert(small)
        _compile(light.save(model, home / "model.onnx"), home, seed, levels)
        for level, hashes in found.items():
            hashes.add(hashlib.sha256((home / f"{level}.pef").read_bytes()).hexdigest())
    assert {level: len(hashes) for level, hashes in found.items()} == dict.fromkeys(found, 1)
