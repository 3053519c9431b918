"""What the types of sections are in a training step."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pef.program import SectionType
from pef.stages import ORDER, WRITES, before, behind
from pef.symbols import SymbolKind

ROOT = Path(__file__).parents[3]


def test_every_type_has_its_place() -> None:
    assert sorted(ORDER) == sorted(SectionType)


def test_what_is_before_and_behind() -> None:
    assert SectionType.ZEROGRAD in before(SectionType.FWD)
    late = [kind for kind in behind(SectionType.BCKWD) if kind is not SectionType.GRADNORM]
    assert late[:2] == [SectionType.REDUCE, SectionType.OPT]
    for kind in SectionType:
        assert (*before(kind), kind, *behind(kind)) == ORDER


def test_weights_are_written_by_the_optimizer_alone() -> None:
    assert [kind for kind in ORDER if SymbolKind.WEIGHT in WRITES[kind]] == [SectionType.OPT]


@pytest.mark.parametrize("folder", ["compiler", "runtime", "cli", "sambaflow", "schema"])
def test_nobody_else_lists_the_types(folder: str) -> None:
    """A set or table of most types would have to know of every further one."""
    listing = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Dict | ast.Set | ast.Tuple | ast.List)
        and len(_types_in(node)) > len(SectionType) // 2
    }
    assert listing == ({"schema/pef/stages.py"} if folder == "schema" else set())


def _types_in(node: ast.AST) -> set[str]:
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and each.attr in SectionType.__members__
    }
