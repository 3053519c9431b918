"""Messages in SambaFlow's form: `[Info][SAMBA][Default] # ...` on standard output.

They go through Python's logger `sambaflow`, whose level decides what is shown. So do those of the
floor that this API stands on, which are of `sambahost`.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import TextIO

__all__ = ["error", "info", "set_level", "warning"]


class _Output(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stdout` is when a message comes, not when this was made."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stdout
        super().emit(record)


class _SambaLogger:
    """A logger that can stop repeating itself."""

    def __init__(self) -> None:
        self._logger = logging.getLogger("sambaflow")
        logging.getLogger("sambahost").parent = self._logger
        self._said: Counter[tuple[int, str]] = Counter()
        if not self._logger.handlers:
            output = _Output(sys.stdout)
            output.setFormatter(_LineForm())
            self._logger.addHandler(output)
            self._logger.setLevel(logging.INFO)
            self._logger.propagate = False

    def log(self, level: int, message: object, limit: int | None) -> None:
        key = level, str(message)
        self._said[key] += 1
        if limit is None or self._said[key] <= limit:
            self._logger.log(level, "%s", message)


class _LineForm(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"[{record.levelname.capitalize()}][SAMBA][Default] # {record.getMessage()}"


_LOGGER = _SambaLogger()


def set_level(name: str) -> None:
    """Show messages of the level `name` (debug, info, warning, error) and worse ones."""
    logging.getLogger("sambaflow").setLevel(name.upper())


def info(message: object, log_limit: int | None = None) -> None:
    """Tell `message`; at most `log_limit` times, if that is given, however often it is called."""
    _LOGGER.log(logging.INFO, message, log_limit)


def warning(message: object, log_limit: int | None = None) -> None:
    """Warn with `message`; `log_limit` as for `info`."""
    _LOGGER.log(logging.WARNING, message, log_limit)


def error(message: object, log_limit: int | None = None) -> None:
    """Report `message` as an error; `log_limit` as for `info`."""
    _LOGGER.log(logging.ERROR, message, log_limit)
