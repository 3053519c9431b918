"""Runs all cases on an engine in worker processes and survives the death of any of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_WORKER = Path(__file__).with_name("worker.py")
_PATIENCE = 120.0  # seconds without a finished case before a worker counts as hanging


def run_cases(engine: str, names: Sequence[str]) -> dict[str, str]:
    """The outcome of each case: 'pass' or the reason why it does not.

    A case that kills its process or hangs is reported as such, and the rest go on in a new one.
    """
    outcomes: dict[str, str] = {}
    while pending := [name for name in names if name not in outcomes]:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.jsonl"
            results.touch()
            ending = _run_worker(engine, pending, results)
            outcomes |= _read(results, ending)
        if pending[0] not in outcomes:
            raise RuntimeError(f"the worker for {engine} ended before its first case: {ending}")
    return outcomes


def _run_worker(engine: str, names: Sequence[str], results: Path) -> str:
    """Run one worker to its end, natural or not; returns what ended it."""
    command = [sys.executable, str(_WORKER), engine, str(results)]
    # Some cases ask for a locale. Without this they would depend on what the host has installed.
    environment = os.environ | {"LOCPATH": "/nonexistent"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        process.stdin.write("\n".join(names))
        process.stdin.close()
        hangs = _wait(process, results)
        assert process.stderr is not None
        last = process.stderr.read().strip().splitlines()[-1:]
    if hangs:
        return f"hangs for more than {_PATIENCE:.0f} seconds"
    if process.returncode < 0:
        return f"kills the process with {signal.Signals(-process.returncode).name}"
    return f"ends the process with code {process.returncode} {''.join(last)}".strip()


def _wait(process: subprocess.Popen[str], results: Path) -> bool:
    """Wait for the worker; True when it had to be killed because it made no progress."""
    while process.poll() is None:
        if time.time() - results.stat().st_mtime > _PATIENCE:
            process.kill()
            process.wait()
            return True
        time.sleep(0.05)
    return False


def _read(results: Path, ending: str) -> dict[str, str]:
    """The outcomes in a worker's file; a case that only started takes the worker's ending."""
    outcomes: dict[str, str] = {}
    for line in results.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        started = record["outcome"] == "started"
        outcomes[record["case"]] = ending if started else record["outcome"]
    return outcomes
