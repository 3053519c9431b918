"""Each test has its own devices."""

from __future__ import annotations

import pytest

import pybuda


@pytest.fixture(autouse=True)
def _no_devices_left():
    yield
    pybuda.shutdown()
