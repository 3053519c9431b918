"""The state a run begins with, from words, and what an executable holds in memory, in words.

A run begins with checkpoints, made-up weights, hyperparameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from math import isfinite

import pef
from pef.states import states_of
from pef.symbols import SymbolKind
from pef.text import human_bytes, number_of, whole_of
from sambarun import Executable, OtherProgramWarning
from sambarun.training.data import Cursor

from .shell import Wrong, echo, one_each
from .train_options import TrainWords

_MADE_UP = (SymbolKind.WEIGHT, SymbolKind.BUFFER)


def begin(executable: Executable, words: TrainWords) -> Cursor:
    """Load or make up the state, as `words` say, and return where the run stands in its data."""
    load, init = words["load"], words["init"]
    if load is not None and init is not None:
        raise Wrong("--load, --init: the state can come from one of them only.")
    if init is not None:
        if not _lacks_weights(executable.program):
            echo("Note: --init: the program has all its weights; none are made up.", err=True)
        executable.initialize(_seed(init))
    return Cursor() if load is None else _load(executable, load)


def _load(executable: Executable, path: str) -> Cursor:
    """Load a checkpoint, and say so if it is another program's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OtherProgramWarning)
        cursor = executable.load(path)
    for warning in caught:
        echo(f"Note: --load: {warning.message}", err=True)
    return cursor


def _lacks_weights(program: pef.Program) -> bool:
    symbols = (program.symbols[index] for index in states_of(program).own)
    return any(s.data is None and s.kind in _MADE_UP for s in symbols)


def hyperparams(texts: Iterable[str]) -> dict[str, float]:
    """Return the values in words like `lr=0.01`; raise `Wrong` with all that are none."""
    found: list[tuple[str, float]] = []
    problems = []
    for text in texts:
        name, _, number = text.rpartition("=")
        value = number_of(number)
        if not name or value is None:
            problems.append(f"--hyperparam {text}: expected NAME=NUMBER, for instance lr=0.01.")
        elif not isfinite(value):
            problems.append(f"--hyperparam {text}: the number has to be finite.")
        else:
            found.append((name, value))
    if problems:
        raise Wrong("\n".join(problems))
    return one_each("--hyperparam", found)


def _seed(word: str) -> int:
    kind, colon, seed = word.partition(":")
    number = whole_of(seed) if colon else 0
    if kind != "random" or number is None or number < 0:
        raise Wrong(f"--init {word}: expected random:SEED, for instance random:0.")
    return number


def memory_lines(executable: Executable) -> list[str]:
    """Return a line with the memory of `executable`: planned, allocated, and what comes beside."""
    use = executable.memory()
    held = [
        f"{region.region.name} {human_bytes(region.allocated)} of "
        f"{human_bytes(region.planned)} planned"
        for region in use.regions
        if region.planned
    ]
    beside = [] if use.beside is None else [f"{human_bytes(use.beside)} beside them"]
    return [f"memory: {', '.join([*held, *beside])}"] if held else []
