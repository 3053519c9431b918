"""A picture of a loss log that `sambarun --log-csv` wrote: plot.py LOG.csv PICTURE.png."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no screen is needed
from matplotlib import pyplot as plt


def main(log: Path, picture: Path) -> None:
    """Draw the loss of each step and the mean of each epoch."""
    with log.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    steps, losses = [int(row["step"]) for row in rows], [float(row["loss"]) for row in rows]
    epochs: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        epochs.setdefault(int(row["epoch"]), []).append(index)
    middles = [sum(steps[i] for i in of) / len(of) for of in epochs.values()]
    means = [sum(losses[i] for i in of) / len(of) for of in epochs.values()]

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(steps, losses, color="0.75", linewidth=0.8, label="each step")
    axes.plot(middles, means, color="tab:blue", linewidth=2, label="mean of each epoch")
    axes.set(
        title="Handwritten digits: training loss",
        xlabel="step",
        ylabel="cross entropy",
        yscale="log",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(picture, dpi=150)
    print(f"{picture}: {len(epochs)} epochs, last mean {means[-1]:.4g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
