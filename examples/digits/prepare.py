"""Handwritten digits as training data: writes train.npz and test.npz into a folder.

The data are inside scikit-learn: 1,797 pictures of 8 x 8 pixels with values from 0 to 16, the test
set of the UCI collection. They are put into an order drawn from seed 0; the first 1,437 (80 %) are
for training, the other 360 are held out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

_SEED = 0
_TRAIN = 1437
_WHITE = 16


def main(folder: Path) -> None:
    """Write both files: x is float32 [N, 1, 8, 8] from 0 to 1, y the digit as int64 [N]."""
    digits = load_digits()
    order = np.random.default_rng(_SEED).permutation(len(digits.target))
    x = (digits.images[order, None] / _WHITE).astype(np.float32)
    y = digits.target[order].astype(np.int64)
    for name, rows in (("train", slice(_TRAIN)), ("test", slice(_TRAIN, None))):
        np.savez(folder / f"{name}.npz", x=x[rows], y=y[rows])
        print(f"{folder / name}.npz: {len(y[rows])} pictures")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
