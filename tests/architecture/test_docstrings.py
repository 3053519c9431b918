"""Docstrings and comments name files and classes that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import onnx

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("compiler", "runtime", "schema", "host", "cli", "sambaflow", "pybuda")
_CLASSES_OF_PYTORCH = {"ModuleDict"}


@cache
def _sources() -> dict[Path, str]:
    """The text of every module that is no generated one."""
    paths = [path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")]
    return {
        path.relative_to(_ROOT): path.read_text("utf-8")
        for path in paths
        if "generated" not in path.parts
    }


@cache
def _names(path: Path) -> frozenset[str]:
    """The words of a module outside of backquotes."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", re.sub(r"`[^`\n]*`", "", _sources()[path])))


def _quoted(pattern: str) -> list[tuple[str, str]]:
    """What stands between backquotes and is like `pattern`, with the module that says it."""
    return [
        (path.as_posix(), found)
        for path, text in _sources().items()
        for found in re.findall(rf"`({pattern})`", text)
    ]


def test_files_exist() -> None:
    files = [f"/{path.as_posix()}" for path in _sources()]
    quoted = _quoted(r"[\w/]+\.py")
    assert quoted
    assert not [each for each in quoted if not any(file.endswith(f"/{each[1]}") for file in files)]


def test_classes_exist() -> None:
    known = frozenset().union(*map(_names, _sources()))
    known |= {schema.name for schema in onnx.defs.get_all_schemas()} | _CLASSES_OF_PYTORCH
    quoted = _quoted(r"(?:[A-Z][a-z0-9]+){2,}")
    assert len(quoted) > 100
    assert not [each for each in quoted if each[1] not in known]
