"""`python tests/fuzz/forged.py`: forged PEFs are run or refused, and verified or refused.

A seed chooses the program and what is forged in it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
from damaged_models import sound_model
from forgery import forged
from supervised import main

import pef
import pef.writer
import sambac
import sambarun
from pef import dtypes
from pef.states import is_training

_MOST = 1_000_000  # elements of an input that somebody would give
LEVELS: Mapping[str, sambac.options.Level] = {
    "mlp": "O3", "cnn": "O0", "recurrent": "O0", "loop": "O0", "sequences": "O0", "indices": "O1",
    "shapes": "O0", "strings": "O0", "maps": "O3",
}  # fmt: skip
TRAINED = ("loss", "cnn")
NAMES = (*LEVELS, *(f"{name}/train" for name in TRAINED))


@cache
def program_of(name: str) -> pef.Program:
    model, _, trained = name.partition("/")
    if not trained:
        return sambac.compile(sound_model(model), sambac.CompileOptions(level=LEVELS[model]))
    start = () if model == "loss" else ("y",)
    optimizer = sambac.AdamW(lr=1e-3) if model == "loss" else sambac.SGD(lr=0.1, momentum=0.9)
    options = sambac.CompileOptions(train=True, backward_from=start, optimizers=(optimizer,))
    return sambac.compile(sound_model(model), options)


def case(seed: int, path: Path) -> str:
    rng = random.Random(seed)
    program = forged(program_of(NAMES[seed % len(NAMES)]), rng)
    pef.writer.check_program = lambda _: []
    try:
        pef.write(program, path)
    except Exception:  # what no file can say, such as a number that is too large
        return "refused"
    outcome = _run(path, link=rng.random() < 0.7)
    try:
        pef.verify(path)
    except pef.PefError:
        return "refused"
    return outcome


def _run(path: Path, *, link: bool) -> str:
    try:
        with sambarun.load(path, threads=1, link=link) as executable:
            program = executable.program
            inputs = _zeros(program, program.graphs[0])
            if is_training(program):
                executable.step(inputs)
            else:
                executable.run(inputs)
    except (pef.PefError, sambarun.RunError, OSError, MemoryError):
        return "refused"
    return "served"


def _zeros(program: pef.Program, graph: pef.NamedGraph) -> dict[str, np.ndarray]:
    """Return what a caller would give for those inputs that are plain tensors."""
    found = {}
    for port in graph.inputs:
        symbol = program.symbols[port.symbol]
        element = dtypes.BY_NUMBER.get(symbol.dtype)
        sizes = [size if isinstance(size, int) else 2 for size in symbol.shape or ()]
        if element is not None and min(sizes, default=0) >= 0 and prod(sizes) <= _MOST:
            text = element.number == dtypes.STRING
            found[port.name] = (
                np.full(sizes, "a", object) if text else np.zeros(sizes, element.storage)
            )
    return found


if __name__ == "__main__":
    sys.exit(main(case, Path(__file__)))
