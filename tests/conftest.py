"""For every folder: numeric tests are marked, draws depend on no order, garbage waits longer."""

from __future__ import annotations

import gc
import sys

import pytest
from numeric import is_numeric


def pytest_configure() -> None:
    """Look for garbage less often: a fifth of the time went into that."""
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_numeric(item.path):
            item.add_marker("numeric")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What modules and collected tests hold stays: looks for garbage need not walk it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed PyTorch, before fixtures draw from it; it is not loaded for those who do without it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
