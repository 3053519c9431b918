"""Which input holds classes, how many there are, and what is wrong with indices out of range."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

import pef
from pef.graphs import graph_of
from pef.wording import listed
from sambarun.arrays import Array
from sambarun.errors import RunError

_FLOATS = frozenset({1, 10, 11, 16})
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_LABELS = frozenset({"label", "labels", "target", "targets", "y", "class", "classes"})
_IGNORED = -100
# What onnxruntime says where an index is out of range, and which index and which range it names.
_OUT_OF_RANGE = (
    "Out of range value in index tensor",
    "out of data bounds",
    "invalid index found",
    "invalid indice found",
)
_INDEX = re.compile(r"\b(?:idx ?|index|indice) ?= ?(-?[0-9]+)")
_ALLOWED = re.compile(r"inclusive range \[-[0-9]+, ?([0-9]+)\]")
_NEGATIVE = 1 << 62
"""From here on an index was negative: without its sign, where none counts from the end."""


@dataclass(frozen=True, slots=True)
class Classification:
    """An output with scores for `count` classes along `axis`, and the input with the right ones."""

    scores: str
    labels: str
    axis: int
    count: int


def classification(program: pef.Program, model: str = "") -> Classification | None:
    """Return which output is judged by which input, where the signature leaves no doubt.

    That is a floating-point output with one axis more than an integer input beside it: its last
    axis, or in pictures ([N, C, height, width]) its second one. Of several pairs the one counts
    whose input is called like labels. `model` is the one that trains, where there are several.
    """
    number = graph_of(program.graphs, model, pef.GraphRole.EVAL)
    if number is None:
        return None
    graph = program.graphs[number]
    pairs = []
    for output in graph.outputs:
        for port in graph.inputs:
            scores = program.symbols[output.symbol]
            found = _classes(scores, program.symbols[port.symbol])
            if found is not None:
                pairs.append(Classification(output.name, port.name, *found))
    if len(pairs) > 1:
        pairs = [pair for pair in pairs if pair.labels.casefold() in _LABELS]
    return pairs[0] if len(pairs) == 1 else None


def _classes(scores: pef.Symbol, labels: pef.Symbol) -> tuple[int, int] | None:
    """Return the axis of the classes and their number if `labels` can hold those of `scores`."""
    shape = scores.shape or ()
    if scores.dtype not in _FLOATS or labels.dtype not in _INTEGERS or len(shape) < 2:
        return None
    last = len(shape) - 1
    for axis in (1, last) if last > 2 else (last, 1):
        count = shape[axis]
        rows = (*shape[:axis], *shape[axis + 1 :])
        if isinstance(count, int) and count != 1 and labels.shape == rows:
            return axis, count
    return None


def with_ranges(
    error: RunError, program: pef.Program, inputs: Mapping[str, object], model: str = ""
) -> RunError:
    """Return `error`, in other words where onnxruntime has met an index that is out of range.

    It may say which index, but not in which input: named are all inputs of integers that hold it,
    or all of integers, with their ranges. Where others hold them than `inputs`, it stays `error`.
    """
    said = str(error)
    if not any(sign in said for sign in _OUT_OF_RANGE):
        return error
    index = _index(said)
    last = _ALLOWED.search(said)
    pair = None if last else classification(program, model)
    arrays = {name: _array(value) for name, value in inputs.items()}
    whole = {name: array for name, array in arrays.items() if array.dtype.kind in "iu"}
    if not whole and any(port.dtype in _INTEGERS for port in _ports(program)):
        return error
    holding = {name: array for name, array in whole.items() if index is None or index in array}
    found = [
        _range(name, array, pair.count if pair is not None and pair.labels == name else None)
        for name, array in (holding or whole).items()
        if array.size
    ]
    what = "An index" if index is None else f"Index {index}"
    held = f": {listed(found)}" if found else ", which the model computes"
    allowed = f"; 0 to {last[1]} are in range" if last else ""
    return RunError(f"{what} is out of range{held}{allowed}; correct what is indexed with.")


def _array(value: object) -> Array:
    """Return an input of a run as an array, an empty one for what is none, such as a sequence."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # the last two are torch's: no integers, either
        return np.empty(0)


def _ports(program: pef.Program) -> Iterator[pef.Symbol]:
    """Yield what the graphs of a program are given."""
    for graph in program.graphs:
        for port in graph.inputs:
            yield program.symbols[port.symbol]


def _index(said: str) -> int | None:
    """Return the index that onnxruntime names, None if it names none."""
    named = _INDEX.search(said)
    if named is None:
        return None
    index = int(named[1])
    return index - (1 << 63) if index >= _NEGATIVE else index


def _range(name: str, array: Array, classes: int | None) -> str:
    """Return the range of some integers: `'labels' holds 0 to 12 (classes are 0 to 9)`."""
    expected = "" if classes is None else f" (the classes are 0 to {classes - 1})"
    return f"'{name}' holds {array.min()} to {array.max()}{expected}"


def odd_labels(program: pef.Program, arrays: Mapping[str, Array], model: str) -> str | None:
    """Return what is odd about the labels in `arrays`, one array for each input, or None.

    onnxruntime takes negative indices for those from the end, and refuses others. What PyTorch
    ignores by default is not odd.
    """
    pair = classification(program, model)
    if pair is None or pair.labels not in arrays:
        return None
    labels = arrays[pair.labels]
    labels = labels[labels != _IGNORED]
    if not labels.size or (labels.min() >= 0 and labels.max() < pair.count):
        return None
    return _range(pair.labels, labels, pair.count)
