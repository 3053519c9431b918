"""Text as training data: prepare.py FOLDER TEXT... writes train.npz, pieces of 64 letters.

Each piece has its letters and those that follow them; pieces begin at every 16th letter, so they
overlap. What is not ASCII is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

LENGTH, STRIDE = 64, 16


def main(folder: Path, texts: list[Path]) -> None:
    """Write what is in `texts`."""
    text = "\n".join(path.read_text("utf-8") for path in texts)
    letters = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int64)
    pieces = np.lib.stride_tricks.sliding_window_view(letters, LENGTH + 1)[::STRIDE]
    np.savez(folder / "train.npz", letters=pieces[:, :-1], following=pieces[:, 1:])
    print(f"{len(letters):,} letters, {len(pieces):,} pieces")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(text) for text in sys.argv[2:]])
