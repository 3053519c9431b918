"""Tests share one session, `samba.session`, as applications do: each begins with a fresh one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sambaflow.samba as samba


@pytest.fixture(autouse=True)
def _fresh_session() -> Iterator[None]:
    """Forget what the session was told and has loaded when a test is over, passed or failed."""
    yield
    samba.session.reset()
