"""Run hostile cases in child processes, and see whose fault each failure is.

A file may be served or refused, and nothing else: no other error, no end of the process, no endless
work. A child says before each case what it begins with; if it dies or does not go on, that is the
outcome of the case, and another child goes on with the next. A case is a seed. What ends in another
way is kept in a folder.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import resource
import secrets
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

FINE = ("served", "refused")
_PATIENCE = 120  # seconds for one case, on a machine that does other things too
_MOST_MEMORY = 12 << 30  # bytes of addresses

Case = Callable[[int, Path], str]
"""Runs the case of a seed, whose file is to be written to the path; returns an outcome."""


def cases(script: Path, first: int, count: int, folder: Path) -> Iterator[dict[str, str | int]]:
    """Run `count` cases of `script` in child processes; yield seed, outcome and words of each."""
    seed, end = first, first + count
    while seed < end:
        with tempfile.TemporaryDirectory() as place:
            results = Path(place) / "results.jsonl"
            command = [
                sys.executable,
                str(script),
                "--child",
                str(results),
                "--crashes",
                str(folder),
            ]
            child = subprocess.run(
                [*command, "--seed", str(seed), "--count", str(end - seed)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            rows = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
        found = {row["seed"]: row for row in rows}
        if not found:
            raise RuntimeError(f"no case ran: {child.stderr}")
        for row in found.values():
            if row["outcome"] == "begun":
                row["outcome"] = f"ends the process with code {child.returncode}"
                row["words"] = child.stderr[-1000:]
        yield from found.values()
        seed = max(found) + 1


def _run_here(case: Case, seeds: range, results: Path, folder: Path) -> None:
    """Run cases in this process, and write a line before and after each."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    with results.open("a", encoding="utf-8") as file:

        def say(seed: int, outcome: str, words: str) -> None:
            row = {"seed": seed, "outcome": outcome, "words": words}
            print(json.dumps(row), file=file, flush=True)

        for seed in seeds:
            say(seed, "begun", "")
            faulthandler.dump_traceback_later(_PATIENCE, exit=True)
            say(seed, *_outcome(case, seed, folder / f"seed-{seed}"))
            faulthandler.cancel_dump_traceback_later()


def _outcome(case: Case, seed: int, path: Path) -> tuple[str, str]:
    try:
        outcome = case(seed, path)
    except Exception:  # whatever else there is: that is what is looked for
        return "internal error", traceback.format_exc()
    path.unlink(missing_ok=True)
    return outcome, ""


def main(case: Case, script: Path) -> int:
    """Run what the command line of `script` says; its children call this function too."""
    parser = argparse.ArgumentParser(prog=f"python tests/fuzz/{script.name}", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; random if absent")
    parser.add_argument("--count", type=int, default=5000, help="how many cases")
    parser.add_argument("--crashes", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.crashes.mkdir(parents=True, exist_ok=True)
    first = secrets.randbelow(10**9) if arguments.seed is None else arguments.seed
    seeds = range(first, first + arguments.count)
    if arguments.child is not None:
        _run_here(case, seeds, arguments.child, arguments.crashes)
        return 0
    outcomes: Counter[str] = Counter()
    for row in cases(script, first, arguments.count, arguments.crashes):
        outcomes[str(row["outcome"])] += 1
        if row["outcome"] not in FINE:
            print(f"seed {row['seed']}: {row['outcome']}\n{row['words']}")
    print(f"seeds {first} to {first + arguments.count - 1}: {dict(outcomes)}")
    return int(not set(outcomes).issubset(FINE))
