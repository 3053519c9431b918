"""The page of names beside what is documented, what is there, and the tests that it names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pybuda_documented import BEYOND, DOCUMENTED, OPTIONS

import pybuda
from sambahost import driven

_PAGE = (Path(__file__).parents[2] / "docs" / "pybuda" / "api.md").read_text("utf-8")
_ROW = re.compile(r"^\| `([\w.]+)(?:\((.*?)\))?` \| (.+) \| (?:`([^`]+)`|-) \|$", re.MULTILINE)


class Row(NamedTuple):
    """A row of a table: a name, some of its parameters, what they do here, and a test."""

    name: str
    parameters: tuple[str, ...]
    status: str
    test: str

    @property
    def missing(self) -> bool:
        return self.status.startswith("missing: ")


def _rows(text: str) -> list[Row]:
    return [
        Row(name, tuple(given.split(", ")) if given else (), status, test)
        for name, given, status, test in _ROW.findall(text)
    ]


_NAMES, _, _REST = _PAGE.partition("\n## Options\n")
_OPTIONS, _, _BEYOND = _REST.partition("\n## Beyond the page\n")
ROWS = [*_rows(_NAMES), *_rows(_BEYOND)]


def _found(name: str) -> object:
    """Return what `name` is below `pybuda`. Raises `AttributeError` where there is none."""
    found: object = pybuda
    for part in name.split("."):
        enum = isinstance(found, type) and part == "name"
        found = next(iter(found)).name if enum else getattr(found, part)
    return found


def test_the_page_has_every_documented_name_and_parameter() -> None:
    told: dict[str, list[str]] = {}
    for row in _rows(_NAMES):
        told.setdefault(row.name, []).extend(row.parameters)
    assert told.keys() == DOCUMENTED.keys()
    for name, parameters in DOCUMENTED.items():
        whole = told[name] or (parameters if _absent(name) else ())
        assert sorted(whole) == sorted(parameters), name


def _absent(name: str) -> bool:
    """Whether all that the page says of a name, with what it is part of, is that it is missing."""
    return all(row.missing for row in ROWS if row.name == name)


def test_the_page_has_every_option() -> None:
    assert [row.name for row in _rows(_OPTIONS)] == sorted(OPTIONS)


def test_the_page_has_every_public_name() -> None:
    assert {*pybuda.__all__} <= {row.name for row in ROWS if not row.missing}
    assert sorted({row.name for row in _rows(_BEYOND)}) == sorted(BEYOND)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}({','.join(row.parameters)})")
def test_what_the_page_says_is_there_is_there(row: Row) -> None:
    if row.missing and not row.parameters:
        with pytest.raises(AttributeError):
            _found(row.name)
        return
    found = _found(row.name)
    if row.parameters and row.name != "override_op_size":  # which is made of a table
        taken = {*inspect.signature(found).parameters}
        given = {*row.parameters}
        assert not (given & taken if row.missing else given - taken)


def test_every_test_of_the_page_is_there() -> None:
    sources = {path.name: path.read_text("utf-8") for path in Path(__file__).parent.glob("*.py")}
    for row in (*ROWS, *_rows(_OPTIONS)):
        file, _, function = row.test.partition("::")
        assert bool(row.test) != row.missing, row
        if row.test:
            assert f"def {function}(" in sources.get(file, ""), row


@pytest.mark.parametrize("row", _rows(_OPTIONS), ids=lambda row: row.name)
def test_an_option_warns_as_the_page_says(row: Row) -> None:
    says = row.status.removeprefix("warns: ")
    if says == row.status:
        return
    sentence = re.escape(f"{row.name}=1: {says}; it has no effect here")
    with pytest.warns(UserWarning, match=f"^{sentence}$"):
        pybuda.set_configuration_options(**{row.name: 1})


def _sentences(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module; what is put into them is left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else "\0" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_what_is_refused_is_told_in_the_words_of_the_page() -> None:
    files = [*Path(pybuda.__file__).parent.rglob("*.py"), Path(driven.__file__)]
    said = [text for path in files for text in _sentences(ast.parse(path.read_text("utf-8")))]
    quoted = [text for row in ROWS for text in re.findall(r'"([^"]+)"', row.status)]
    assert quoted
    for text in quoted:
        pattern = ".*".join(map(re.escape, text.split("...")))
        assert any(re.search(pattern, each) for each in said), text
