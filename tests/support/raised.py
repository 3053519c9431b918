"""Whether an error was raised on purpose."""

from __future__ import annotations

import linecache

import pytest


def raised_by_the_package(caught: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether the line that an error comes from is a `raise` of sambaflow's.

    One line, as pytest's `statement` parses the whole file for each traceback.
    """
    last = caught.traceback[-1]
    line = linecache.getline(str(last.path), last.lineno + 1)
    return "sambaflow" in str(last.path) and line.strip().startswith("raise ")
