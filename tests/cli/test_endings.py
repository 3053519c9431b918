"""A file is not called what it is not: endings that mean another kind of file are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from training_programs import linear_regression


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    linear_regression().program().save(tmp_path / "net.pef")
    return tmp_path / "net.pef"


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("inspect", "net.pef", "--html"), ".html"),
        (("extract", "net.pef", "--section", "0", "-o"), ".onnx"),
        (("scale", "net.pef", "--plot"), ".svg"),
    ],
)
def test_sambac(words: tuple[str, ...], ending: str, sambac: Callable, program: Path) -> None:
    del program
    result = sambac(*words, "other.pef")
    assert result.code == 2
    assert "other.pef" in result.err
    assert f"name that ends with {ending}" in result.err
    assert not Path("other.pef").exists()


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("--sections", "FWD", "--profile"), ".json"),
        (("--steps", "1", "--data", "none.npz", "--log-csv"), ".csv"),
    ],
)
def test_sambarun(words: tuple[str, ...], ending: str, sambarun: Callable, program: Path) -> None:
    result = sambarun(program, *words, "other.toml")
    assert result.code == 2
    assert "other.toml would be a file of settings by its name, and " in result.err
    assert f"name that ends with {ending}" in result.err
