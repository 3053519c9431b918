"""What a trained program gives on data it has not seen: averages, results, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .arrays import Array
from .errors import RunError
from .executor import Executable
from .selection import Selection
from .training.classes import Classification, classification, with_ranges
from .training.data import Batches


@dataclass(slots=True)
class Evaluation:
    """Results over a whole data set.

    `rows` were evaluated. `means` are averages of scalar outputs over full batches, which cover
    `averaged` rows: what a batch is filled up with would change them. `outputs` are those with a
    row for each row of the data. `right` of `judged` labels were scored highest; labels that are
    no class (a negative one is to be ignored) are not judged.
    """

    rows: int = 0
    averaged: int = 0
    means: dict[str, float] = field(default_factory=dict)
    outputs: dict[str, Array] = field(default_factory=dict)
    classification: Classification | None = None
    right: int = 0
    judged: int = 0


def evaluate(
    executable: Executable,
    batches: Batches,
    *,
    keep: bool = False,
    after: Callable[[int], None] | None = None,
    model: str = "",
) -> Evaluation:
    """Run the evaluation graph over all rows of `batches`; with `keep`, keep what it gives.

    `model` is the one to evaluate, where several train.
    `after` is called after each batch with the number of rows that are done. Raises `RunError` as
    `Executable.run` does.
    """
    found = Evaluation(classification=classification(executable.program, model))
    sums: dict[str, float] = {}
    parts: dict[str, list[Array]] = {}
    forward = Selection("FWD", graph=model or None)
    for batch, rows in batches.in_order():
        try:
            results = executable.run(batch, forward)
        except RunError as error:
            raise with_ranges(error, executable.program, batch, model) from error.__cause__
        full = rows == batches.size
        for name, value in results.items():
            if value.ndim and value.shape[0] == batches.size and keep:
                parts.setdefault(name, []).append(value[:rows])
            elif value.size == 1 and full and value.dtype.kind == "f":
                sums[name] = sums.get(name, 0.0) + float(value.reshape(-1)[0])
        found.rows += rows
        found.averaged += rows if full else 0
        _judge(found, batch, results, rows)
        if after is not None:
            after(found.rows)
    found.means = {name: value / batches.count for name, value in sums.items()}
    found.outputs = {name: np.concatenate(values) for name, values in parts.items()}
    return found


def _judge(
    found: Evaluation, batch: Mapping[str, Array], results: Mapping[str, Array], rows: int
) -> None:
    """Count how often the highest score is that of the label."""
    pair = found.classification
    if pair is None or pair.labels not in batch or pair.scores not in results:
        return
    scores, labels = results[pair.scores][:rows], batch[pair.labels][:rows]
    known = (labels >= 0) & (labels < scores.shape[pair.axis])
    found.judged += int(known.sum())
    found.right += int(((scores.argmax(axis=pair.axis) == labels) & known).sum())
