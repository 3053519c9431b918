"""Runs cases in this process, which a case may kill.

Every case leaves two lines of JSON in a file, one before it starts and one with its outcome, so
that the supervisor knows which case was running when the process died.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from cases import Case
from engines import ENGINES, Engine

_REASON_LENGTH = 1000


def run(engine: str, cases: Sequence[Case], results: Path, errors: Path) -> None:
    """Run the cases; what the process says goes to the file `errors`."""
    with errors.open("wb") as said:
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
    # Some cases ask for a locale. Without this they would depend on what the host has installed.
    os.environ["LOCPATH"] = "/nonexistent"
    os.fsync = os.fstat  # type: ignore[assignment]  # no file has to outlast a power cut
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, results.open("a", encoding="utf-8") as log:
        for case in cases:
            _write(log, {"case": case.name, "outcome": "started"})
            reason = _outcome(ENGINES[engine], case, Path(folder))
            _write(log, {"case": case.name, "outcome": reason or "pass"})


def _outcome(engine: Engine, case: Case, folder: Path) -> str:
    """An empty text where the case passes, otherwise the reason why not."""
    try:
        engine(case, folder)
    # The question is whether the case passes, and every exception is a no with a reason.
    except Exception as error:
        return _reason(error, case.name)
    return ""


def _reason(error: Exception, name: str) -> str:
    """The error in one short line that is the same on every run."""
    text = f"{type(error).__name__}: {error}"
    line = " ".join(text.split()).replace(name.partition("/")[2], "the model")
    line = re.sub(r"(?:/[\w.+-]+)+/(?=[\w.+-])", "", line)  # folders of this machine
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 1] + "…"


def _write(log: IO[str], record: dict[str, str]) -> None:
    log.write(json.dumps(record) + "\n")
    log.flush()
