"""Texts written on, letter by letter: write.py FILE.pef TEXT... needs numpy and sambarun alone.

All texts are written at once. The cache that a run returns is what the next one is given; it begins
with no letters, and the texts are read letter by letter like what is written.
"""

from __future__ import annotations

import sys

import numpy as np

import sambarun

LENGTH, HEAT, SEED = 63, 0.5, 0


def write(executable: sambarun.Executable, texts: list[str]) -> list[str]:
    """Return `texts` with what the program in `executable` writes, 63 letters in all."""
    random = np.random.default_rng(SEED)
    written = [list(text.encode("ascii")) for text in texts]
    program = executable.program
    _, *caches = program.graphs[0].inputs
    _, heads, _, size = program.symbols[caches[0].symbol].shape
    nothing = np.zeros((len(texts), int(heads), 0, int(size)), np.float32)
    seen = {port.name: nothing for port in caches}
    for at in range(LENGTH):
        letters = np.array([[text[at]] for text in written])
        scores, *kept = executable.run({"letters": letters, **seen}).values()
        seen = dict(zip(seen, kept, strict=True))
        for text, score in zip(written, scores[:, 0].astype(np.float64), strict=True):
            if len(text) == at + 1:
                shares = np.exp((score - score.max()) / HEAT)
                text.append(int(random.choice(len(shares), p=shares / shares.sum())))
    return [bytes(text).decode("ascii") for text in written]


if __name__ == "__main__":
    with sambarun.load(sys.argv[1]) as executable:
        for text in write(executable, sys.argv[2:]):
            print(text)
            print()
