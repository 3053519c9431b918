"""Runs all cases on an engine in worker processes and survives the death of any of them."""

from __future__ import annotations

import json
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from cases import Case

import worker

_PATIENCE = 120.0  # seconds without a finished case before a worker counts as hanging
# Collecting the cases takes seconds: workers begin with what this process has of them.
_FORK = multiprocessing.get_context("fork")


def run_cases(engine: str, cases: Sequence[Case]) -> dict[str, str]:
    """The outcome of each case: 'pass' or the reason why it does not.

    A case that kills its process or hangs is reported as such, and the rest go on in a new one.
    """
    outcomes: dict[str, str] = {}
    while pending := [case for case in cases if case.name not in outcomes]:
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results.jsonl"
            results.touch()
            ending = _run_worker(engine, pending, results)
            outcomes |= _read(results, ending)
        if pending[0].name not in outcomes:
            raise RuntimeError(f"the worker for {engine} ended before its first case: {ending}")
    return outcomes


def _run_worker(engine: str, cases: Sequence[Case], results: Path) -> str:
    """Run one worker to its end, natural or not; returns what ended it."""
    errors = results.with_name("errors.txt")
    process = _FORK.Process(target=worker.run, args=(engine, cases, results, errors))
    process.start()
    if _hangs(process, results):
        return f"hangs for more than {_PATIENCE:.0f} seconds"
    code = process.exitcode or 0
    if code < 0:
        return f"kills the process with {signal.Signals(-code).name}"
    last = errors.read_text("utf-8", "replace").strip().splitlines()[-1:] if errors.exists() else []
    return f"ends the process with code {code} {''.join(last)}".strip()


def _hangs(process: BaseProcess, results: Path) -> bool:
    """Wait for the worker; True when it had to be killed because it made no progress."""
    while process.is_alive():
        if time.time() - results.stat().st_mtime > _PATIENCE:
            process.kill()
            process.join()
            return True
        process.join(0.05)
    return False


def _read(results: Path, ending: str) -> dict[str, str]:
    """The outcomes in a worker's file; a case that only started takes the worker's ending."""
    outcomes: dict[str, str] = {}
    for line in results.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        started = record["outcome"] == "started"
        outcomes[record["case"]] = ending if started else record["outcome"]
    return outcomes
