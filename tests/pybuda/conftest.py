"""Each test has its own devices, and a configuration in which nothing is set."""

from __future__ import annotations

import pytest

import pybuda
from pef.program import Program
from sambahost import stages


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    pybuda.pybuda_reset()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list:
    """What is loaded from now on."""
    found: list[Program] = []
    load = stages.sambarun.load

    def kept(program: Program, **options: int | None) -> object:
        found.append(program)
        return load(program, **options)

    monkeypatch.setattr(stages.sambarun, "load", kept)
    return found
