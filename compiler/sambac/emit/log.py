"""The compile log: what became of a model, as text beside the PEF."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pef.files import write_text
from pef.report import Report, render
from sambac.errors import CompileError


def log_path(pef_path: str | os.PathLike[str]) -> Path:
    """Return where the log of a PEF lies: beside it, with `.log` appended to its name."""
    path = Path(pef_path)
    return path.with_name(path.name + ".log")


def write_log(report: Report, pef_path: str | os.PathLike[str]) -> Path:
    """Write the log beside the PEF, whole or not at all, and return its path.

    Raises `CompileError` when it cannot be written; a log of an earlier compilation is then
    removed, as it would speak of another program.
    """
    path = log_path(pef_path)
    text = "\n".join(render(report)) + "\n"
    try:
        write_text(path, text)
    except OSError as error:
        with suppress(OSError):  # a folder is no log of another program
            path.unlink(missing_ok=True)
        raise CompileError(
            f"{pef_path} was written, but its log {path} was not: {error.strerror}."
        ) from error
    return path
