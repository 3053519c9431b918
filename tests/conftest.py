"""For every folder: numeric tests are marked, draws depend on no order, nothing is waited for."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from numeric import is_numeric
from slow import label, slow_tests

_TESTS = Path(__file__).parent
_LONGEST = {
    _TESTS / name
    for name in (
        "conformance/test_conformance.py",
        "ops/test_torch_extremes.py",
        "ops/test_torch_losses.py",
        "pybuda/test_configuration.py",
        "pybuda/test_inference.py",
        "pybuda/test_networks.py",
        "samba/test_distributed.py",
        "samba/test_tutorial.py",
        "unit/frontend/test_torch_control_flow.py",
    )
}


def pytest_configure() -> None:
    """Look for garbage less often, and wait for no disk: a fifth of the time went into that.

    What tests write need not outlast a power cut. Files still have to be open then. Ctrl-C is
    heard, too, where a shell has started the tests in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(50_000, 20, 20)
    os.fsync = os.fstat  # type: ignore[assignment]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark numeric and slow tests, before any are chosen by their marks."""
    if is_numeric(item.path):
        item.add_marker("numeric")
    if label(item.nodeid) in slow_tests():
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # In whichever order the rest is: no process is to begin them when others have nothing left.
    items.sort(key=lambda item: item.path not in _LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What modules and collected tests hold stays: looks for garbage need not walk it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed PyTorch, before fixtures draw from it; it is not loaded for those who do without it.

    Nor does it look for garbage itself after each branch, of which there is much to look at here.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
    if (dynamo := sys.modules.get("torch._dynamo.config")) is not None:
        dynamo.run_gc_after_compile = False  # type: ignore[attr-defined]  # of a module got by its name
