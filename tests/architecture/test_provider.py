"""What is said to onnxruntime of a provider is said in one module of the runtime."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_RUNTIME = _ROOT / "runtime" / "sambarun"
_FOLDERS = (_RUNTIME, *(_ROOT / name for name in ("cli", "host", "sambaflow", "pybuda")))
_PROVIDER = "sessions/provider.py"
_MADE = {
    "InferenceSession": _PROVIDER,
    "RunOptions": _PROVIDER,
    "SessionOptions": "sessions/opening.py",
}
_NAMED = ("OrtDevice", "OrtMemoryInfo", "ortvalue_from_")


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    """All that stands in the code that runs programs, and in which module."""
    for folder in _FOLDERS:
        for path in folder.rglob("*.py"):
            module = str(path.relative_to(folder))
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                yield module, node


def test_one_module_names_a_provider() -> None:
    naming = {
        module
        for module, node in _nodes()
        if isinstance(node, ast.Constant) and "ExecutionProvider" in str(node.value)
    }
    assert naming == {_PROVIDER}


def test_one_module_says_where_memory_is() -> None:
    naming = {
        module
        for module, node in _nodes()
        if isinstance(node, ast.Attribute) and node.attr.startswith(_NAMED)
    }
    assert naming == {_PROVIDER}


@pytest.mark.parametrize("name", _MADE)
def test_one_module_makes(name: str) -> None:
    making = {
        module
        for module, node in _nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
    }
    assert making == {_MADE[name]}
