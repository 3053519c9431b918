"""Golden tests of explanations: what is said of small programs, word for word.

`pytest tests/golden --update-golden` writes the files in `explanations/`; review the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from explained import PROGRAMS

from sambac.explain import explain

FOLDER = Path(__file__).parent / "explanations"
WANTED = {
    "inference": (None, "section_0", "section_1", "/layer.3/MatMul", "/layer.1/Add"),
    "single": (None, "/layer.0/MatMul", "x"),
    "rules": (None, "0", "/layer.0/Add"),
    "training": (None, "bckwd_0", "layers.0.weight", "x", "node_linear"),
    "full": (None, "x", "layers.1.weight__exp_avg", "layers.0.weight"),
}


@pytest.mark.parametrize("name", WANTED)
def test_explanations(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    program = PROGRAMS[name](tmp_path)
    found = [each for subject in WANTED[name] for each in explain(program, subject)]
    text = "\n\n".join("\n".join(each.lines(90)) for each in found) + "\n"
    golden = FOLDER / f"{name}.txt"
    if pytestconfig.getoption("--update-golden"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")
