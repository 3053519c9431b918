"""For every folder: numeric tests are marked; what tests draw does not depend on their order."""

from __future__ import annotations

import sys

import pytest
from numeric import is_numeric


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_numeric(item.path):
            item.add_marker("numeric")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed PyTorch, before fixtures draw from it; it is not loaded for those who do without it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
