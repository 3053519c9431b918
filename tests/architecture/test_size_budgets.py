"""Files and functions stay small, and every module says what it is for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PRODUCT = (
    "compiler/sambac",
    "runtime/sambarun",
    "schema",
    "host/sambahost",
    "cli/samba_cli",
    "sambaflow",
    "pybuda",
)
_OTHERS = ("benchmarks", "examples", "tests")
_FILE_LINES = 400
_PYBUDA_LINES = 6000
_FUNCTION_LINES = 50
_TYPICAL_FUNCTION_LINES = 30  # for 95 of 100 functions of the product
_PARAMETERS = 5


def _files(folders: tuple[str, ...]) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted((_ROOT / folder).rglob("*.py"))
        if "generated" not in path.parts  # written by flatc
    ]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path.relative_to(_ROOT)}:{node.lineno} {node.name}", node


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_there_is_something_to_measure() -> None:
    assert len(_files(_PRODUCT)) > 50


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(_ROOT)): len(path.read_text("utf-8").splitlines())
        for path in _files(_PRODUCT + _OTHERS)
    }
    assert not {path: lines for path, lines in lengths.items() if lines > _FILE_LINES}


def test_pybuda_stays_a_thin_layer() -> None:
    lines = [len(path.read_text("utf-8").splitlines()) for path in _files(("pybuda",))]
    assert 1000 < sum(lines) <= _PYBUDA_LINES


def test_functions_are_short() -> None:
    long = {
        name: _length(node)
        for path in _files((*_PRODUCT, "benchmarks", "examples"))
        for name, node in _functions(path)
        if _length(node) > _FUNCTION_LINES
    }
    assert not long


def test_most_functions_are_very_short() -> None:
    lengths = sorted(_length(node) for path in _files(_PRODUCT) for _, node in _functions(path))
    assert lengths[len(lengths) * 95 // 100] <= _TYPICAL_FUNCTION_LINES


def test_functions_have_few_parameters() -> None:
    """At most five that a caller has to give, besides self and the options of a command.

    Operators of PyBuda have the parameters that programs give them.
    """
    many = {
        name: _required(node)
        for path in _files(_PRODUCT)
        for name, node in _functions(path)
        if _required(node) > _PARAMETERS and not node.decorator_list
        if path.parent != _ROOT / "pybuda/op" and path.name != "manipulations.py"
    }
    assert not many


def _required(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters have no default."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    own = [argument for argument in given if argument.arg not in ("self", "cls")]
    return len(own) - len([*node.args.defaults, *filter(None, node.args.kw_defaults)])


# The compiler and the Python APIs all have optimizers under torch's names.
_SHARED_NAMES = frozenset(
    {"Optimizer", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LAMB", "LARS"}
)


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in _files(_PRODUCT):
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(_ROOT)))
    several = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert several.keys() <= _SHARED_NAMES, several


@pytest.mark.parametrize("folders", [_PRODUCT, _OTHERS], ids=["product", "others"])
def test_every_module_has_a_docstring(folders: tuple[str, ...]) -> None:
    silent = [
        str(path.relative_to(_ROOT))
        for path in _files(folders)
        if not ast.get_docstring(_parsed(path))
    ]
    assert not silent
