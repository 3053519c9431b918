"""Each test has its own devices, and a configuration in which nothing is set."""

from __future__ import annotations

import pytest

import pybuda


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    pybuda.pybuda_reset()
