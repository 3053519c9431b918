"""`python tests/fuzz/damaged.py`: damaged models are compiled or refused.

A seed chooses the model, the damage, the level, and whether it is to be trained.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from damage import damaged
from damaged_models import NAMES, sound_model
from supervised import main

import sambac

_TRAINED = 0.15


def case(seed: int, path: Path) -> str:
    rng = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    path.write_bytes(damaged(sound_model(name), rng))
    level = rng.choice(("O0", "O1", "O3"))
    has_loss = name == "loss"
    train = rng.random() < (0.5 if has_loss else _TRAINED)
    start = ("y",) if train and not has_loss else ()
    try:
        sambac.compile(path, sambac.CompileOptions(level=level, train=train, backward_from=start))
    except (sambac.CompileError, OSError, MemoryError):  # what the command answers with 2
        return "refused"
    return "served"


if __name__ == "__main__":
    sys.exit(main(case, Path(__file__)))
