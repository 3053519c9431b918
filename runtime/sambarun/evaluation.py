"""What a trained program gives on data it has not seen: averages, results, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

import pef
from pef.states import EVAL_GRAPH

from .arrays import Array
from .data import Batches
from .executor import Executable

_FLOATS = frozenset({1, 10, 11, 16})
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_LABELS = frozenset({"label", "labels", "target", "targets", "y", "class", "classes"})


@dataclass(frozen=True, slots=True)
class Classification:
    """An output with a score for each class along `axis`, and the input with the right classes."""

    scores: str
    labels: str
    axis: int


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
) -> Evaluation:
    """Run the evaluation graph over all rows of `batches`; with `keep`, keep what it gives.

    `after` is called after each batch with the number of rows that are done. Raises `RunError` as
    `Executable.run` does.
    """
    found = Evaluation(classification=classification(executable.program))
    sums: dict[str, float] = {}
    parts: dict[str, list[Array]] = {}
    for batch, rows in batches.in_order():
        results = executable.run(batch, section_types="FWD")
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


def classification(program: pef.Program) -> Classification | None:
    """Return which output is judged by which input, where the signature leaves no doubt.

    That is a floating-point output with one axis more than an integer input beside it: its last
    axis, or in pictures ([N, C, height, width]) its second one. Of several pairs the one counts
    whose input is called like labels.
    """
    graph = next((graph for graph in program.graphs if graph.name == EVAL_GRAPH), None)
    if graph is None:
        return None
    pairs = []
    for output in graph.outputs:
        for port in graph.inputs:
            axis = _axis(program.symbols[output.symbol], program.symbols[port.symbol])
            if axis is not None:
                pairs.append(Classification(output.name, port.name, axis))
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if pair.labels.casefold() in _LABELS]
    return pairs[0] if len(pairs) == 1 else None


def _axis(scores: pef.Symbol, labels: pef.Symbol) -> int | None:
    """Return the axis of the classes if `labels` can hold the classes of `scores`."""
    shape = scores.shape or ()
    if scores.dtype not in _FLOATS or labels.dtype not in _INTEGERS or len(shape) < 2:
        return None
    last = len(shape) - 1
    for axis in (1, last) if last > 2 else (last, 1):
        if shape[axis] != 1 and labels.shape == (*shape[:axis], *shape[axis + 1 :]):
            return axis
    return None


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
