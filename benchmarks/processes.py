"""Processes that are measured from outside, and workers that measure themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_STOPWATCH = Path(__file__).with_name("stopwatch.py")

Measured = tuple[float, float]  # seconds, peak MB


def in_turns(commands: Mapping[str, Sequence[str]], rounds: int) -> list[dict[str, Measured]]:
    """Measure each command in turns, so many rounds, from a process that is small itself.

    A round before them fills the page cache.
    """
    done = subprocess.run(
        [sys.executable, str(_STOPWATCH), str(rounds + 1)],
        input=json.dumps(commands),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    turns: list[dict[str, Measured]] = json.loads(done.stdout)
    return turns[1:]


def import_times(module: str, rounds: int) -> list[tuple[float, float]]:
    """Return the seconds of processes that import torch, and `module`, round by round."""
    commands = {name: [sys.executable, "-c", f"import {name}"] for name in ("torch", module)}
    return [(turn["torch"][0], turn[module][0]) for turn in in_turns(commands, rounds)]


def answer_of(worker: str, rounds: int) -> dict[str, Any]:
    """Return what the module `worker` measures in so many rounds, in a process of its own."""
    command = [sys.executable, "-m", worker, str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
