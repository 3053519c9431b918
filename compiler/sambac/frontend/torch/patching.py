"""Attributes of PyTorch put aside for a while, and what its exporters say of themselves."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

_LOGGERS = ("torch", "onnxscript", "onnx_ir")
"""Who logs, with all below; what goes wrong is raised as well, and said in one sentence."""

_SILENT = logging.CRITICAL + 1


@contextmanager
def replaced(owner: object, attribute: str, value: object) -> Iterator[None]:
    """Let `attribute` of `owner` be `value` for a while."""
    before = vars(owner)[attribute]
    setattr(owner, attribute, value)
    try:
        yield
    finally:
        setattr(owner, attribute, before)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PyTorch's exporters from warning about themselves, and from printing what they raise.

    What a module prints is printed, if nothing is raised.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    # Setting a level makes every logger of the process look for its own again.
    loggers = [logger for logger in loggers if logger.level != _SILENT]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(_SILENT)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()) as said:
            warnings.simplefilter("ignore")
            yield
        sys.stderr.write(said.getvalue())
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
