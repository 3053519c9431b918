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
model, level, target = sys.argv[1:]
sambac.compile(model, sambac.CompileOptions(level=level)).save(target)
"""


def _compiled(model: Path, level: str, target: Path, seed: str) -> str:
    """Compile in a process of its own, in the model's folder; return the hash of the PEF."""
    subprocess.run(
        [sys.executable, "-c", _COMPILE, model.name, level, str(target)],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=model.parent,
        check=True,
    )
    return hashlib.sha256(target.read_bytes()).hexdigest()


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize("name", ["shufflenet", "bert"])
def test_bytes_depend_on_the_model_and_options_alone(name: str, level: str, tmp_path: Path) -> None:
    small = transformers.Shape(layers=2, hidden=32, heads=2, length=8, vocabulary=64)
    found = set()
    for seed, folder in (("0", "one"), ("1", "a longer folder"), ("4242", "dreiß'ig")):
        home = tmp_path / folder
        home.mkdir()
        model = light.randomized(name) if name != "bert" else transformers.bert(small)
        path = light.save(model, home / "model.onnx")
        found.add(_compiled(path, level, home / f"{seed}.pef", seed))
    assert len(found) == 1
