"""What `make test` leaves to `make test-long` is there to be run."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest
from slow import LIST, TESTS, slow_tests

_BY_MODULE: defaultdict[str, set[str]] = defaultdict(set)
for _listed in slow_tests():
    _module, _, _names = _listed.partition("::")
    _BY_MODULE[_module].add(_names)


def test_the_list_is_in_order() -> None:
    lines = LIST.read_text().splitlines()
    assert lines == sorted({*lines})
    assert len(lines) > 100


@pytest.mark.parametrize("module", sorted(_BY_MODULE))
def test_each_listed_test_is_there(module: str) -> None:
    tree = ast.parse((TESTS / module).read_text("utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        inside = (node for node in owner.body if isinstance(node, ast.FunctionDef))
        functions.update(f"{owner.name}::{node.name}" for node in inside)
    assert functions >= _BY_MODULE[module]
