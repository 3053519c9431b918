"""Marks the numeric tests, for every folder."""

from __future__ import annotations

import pytest
from numeric import is_numeric


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_numeric(item.path):
            item.add_marker("numeric")
