"""Tests share one session, `samba.session`, as applications do: each begins with a fresh one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import together
from forked import Forks

import sambaflow.samba as samba
from sambaflow.logging import samba_logger


@pytest.fixture(autouse=True)
def _fresh_session() -> Iterator[None]:
    """Forget what the session was told and has loaded when a test is over, passed or failed."""
    yield
    samba.session.reset()


@pytest.fixture(autouse=True)
def _same_level() -> Iterator[None]:
    """Let no test silence the loggers of others: applications set the level for their process."""
    logger = samba_logger._LOGGER._logger
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A process that has loaded what applications load.

    But for onnxruntime: that has a thread from the beginning and waits for it when it ends, and a
    fork has none.
    """
    server = Forks("torch.distributed", "torch._dynamo", "sambaflow.samba.utils.argparser")
    yield server
    server.close()


@pytest.fixture
def launch(forks: Forks) -> Callable[..., together.Job]:
    """Launch processes together: `together.launch`."""
    return partial(together.launch, forks)
