"""Runs cases in this process, which a case may kill: `python worker.py ENGINE RESULTS < names`.

Every case leaves two lines of JSON in the file RESULTS, one before it starts and one with its
outcome, so that the supervisor knows which case was running when the process died.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import IO

from cases import Case, load_cases
from engines import ENGINES, Engine

_REASON_LENGTH = 1000


def main() -> None:
    """Run the cases named on standard input, a name a line."""
    engine, results = ENGINES[sys.argv[1]], Path(sys.argv[2])
    names = sys.stdin.read().split()
    warnings.simplefilter("ignore")
    cases = load_cases()
    with tempfile.TemporaryDirectory() as folder, results.open("a", encoding="utf-8") as log:
        for name in names:
            _write(log, {"case": name, "outcome": "started"})
            reason = _outcome(engine, cases[name], Path(folder))
            _write(log, {"case": name, "outcome": reason or "pass"})


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


if __name__ == "__main__":
    main()
