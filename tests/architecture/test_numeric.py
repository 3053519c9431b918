"""Every module that compares with float64 is among those that the long run repeats."""

from __future__ import annotations

import re
from fnmatch import fnmatch

import pytest
from numeric import NUMERIC, TESTS, is_numeric

_COMPARES = re.compile(r"^from near import", re.MULTILINE)
_MODULES = sorted(TESTS.glob("*/**/test_*.py"))


def test_modules_that_compare_with_float64_are_numeric() -> None:
    comparing = [path for path in _MODULES if _COMPARES.search(path.read_text("utf-8"))]
    assert len(comparing) > 8
    assert not [path for path in comparing if not is_numeric(path)]


@pytest.mark.parametrize("pattern", NUMERIC)
def test_each_pattern_names_modules(pattern: str) -> None:
    names = [path.relative_to(TESTS).as_posix() for path in _MODULES]
    assert any(fnmatch(name, pattern) for name in names)
