"""`python tests/fuzz/damaged.py`: compile damaged models, and see whose fault each failure is.

A model may be compiled or refused, and nothing else: no other error, no end of the process, no
endless work. Cases run in a child process, which says before each what it begins with; if it dies
or does not go on, that is the outcome of the case, and another child goes on with the next. A case
is a seed, which chooses the model, the damage and the options. What ends in another way is kept
as `FOLDER/NAME-SEED.onnx`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import resource
import secrets
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FINE = ("compiled", "refused")
_PATIENCE = 120  # seconds for one case, on a machine that does other things too
_MOST_MEMORY = 12 << 30  # bytes of addresses
_TRAINED = 0.15


def cases(first: int, count: int, folder: Path) -> Iterator[dict[str, str | int]]:
    """Run `count` cases in child processes; yield seed, model, outcome and words of each."""
    seed, end = first, first + count
    while seed < end:
        with tempfile.TemporaryDirectory() as place:
            results = Path(place) / "results.jsonl"
            command = [sys.executable, __file__, "--child", str(results), "--crashes", str(folder)]
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


def run_here(first: int, count: int, results: Path, folder: Path) -> None:
    """Run cases in this process, and write a line before and after each."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    with results.open("a", encoding="utf-8") as file:
        for seed in range(first, first + count):
            for row in _case(seed, folder):
                print(json.dumps({"seed": seed, **row}), file=file, flush=True)


def _case(seed: int, folder: Path) -> Iterator[dict[str, str]]:
    from damage import damaged
    from damaged_models import NAMES, sound_model

    rng = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    path = folder / f"{name}-{seed}.onnx"
    path.write_bytes(damaged(sound_model(name), rng))
    yield {"model": name, "outcome": "begun", "words": ""}
    faulthandler.dump_traceback_later(_PATIENCE, exit=True)
    outcome, words = _outcome(path, rng, may_train=name == "loss")
    faulthandler.cancel_dump_traceback_later()
    if outcome in FINE:
        path.unlink()
    yield {"model": name, "outcome": outcome, "words": words}


def _outcome(path: Path, rng: random.Random, *, may_train: bool) -> tuple[str, str]:
    import sambac

    level = rng.choice(("O0", "O1", "O3"))
    train = rng.random() < (0.5 if may_train else _TRAINED)
    start = ("y",) if train and not may_train else ()
    try:
        sambac.compile(path, sambac.CompileOptions(level=level, train=train, backward_from=start))
    except (sambac.CompileError, OSError, MemoryError) as error:  # what the command answers with 2
        return "refused", str(error)
    except Exception:  # whatever else there is: that is what is looked for
        return "internal error", traceback.format_exc()
    return "compiled", ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/fuzz/damaged.py", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; random if absent")
    parser.add_argument("--count", type=int, default=5000, help="how many cases")
    parser.add_argument("--crashes", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.crashes.mkdir(parents=True, exist_ok=True)
    first = secrets.randbelow(10**9) if arguments.seed is None else arguments.seed
    if arguments.child is not None:
        run_here(first, arguments.count, arguments.child, arguments.crashes)
        return 0
    outcomes: Counter[str] = Counter()
    for row in cases(first, arguments.count, arguments.crashes):
        outcomes[str(row["outcome"])] += 1
        if row["outcome"] not in FINE:
            print(f"seed {row['seed']}, {row['model']}: {row['outcome']}\n{row['words']}")
    print(f"seeds {first} to {first + arguments.count - 1}: {dict(outcomes)}")
    return int(not set(outcomes).issubset(FINE))


if __name__ == "__main__":
    sys.exit(main())
