"""What outputs should be on samples: how wrong a model is by a measure of its user's.

An array of whole numbers beside an output of scores is labels: the output is as wrong as the share
of labels that are not where its scores are highest. Beside an output of whole numbers it is the
share of those that differ, and beside one of floating point the relative distance from what is
expected. Labels below 0 count for nothing, as torch's loss ignores its -100.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from pef.text import plural
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.graph.constants import Array

from .measuring import Errors
from .samples import port_of, read_arrays, split

_OPTION = "expect (--expect)"


@dataclass(frozen=True)
class ExpectedOutput:
    """What an output should be: one of `parts` for each batch.

    `output` is the name that users know, `value` that of the graph. With `classes`, an axis of the
    output, parts are labels on that axis.
    """

    output: str
    value: str
    parts: tuple[Array, ...]
    classes: int | None = None

    @property
    def measure(self) -> str:
        """What a score is, in the words of the log."""
        if self.classes is not None:
            return "wrong labels"
        return "distance from what is expected" if self._is_real else "wrong numbers"

    @property
    def _is_real(self) -> bool:
        return self.parts[0].dtype.kind == "f"

    def score(self, found: Iterable[Array]) -> float:
        """Return how wrong an output is that was `found` so in the batches, in three digits."""
        pairs = [self._pair(*pair) for pair in zip(found, self.parts, strict=True)]
        if self._is_real:
            errors = Errors()
            for came, wanted in pairs:
                errors.see(self.value, came, wanted)
            return errors.of()[self.value]
        counted = [
            np.ones(wanted.shape, bool) if self.classes is None else wanted >= 0
            for _, wanted in pairs
        ]
        wrong = sum(
            int(np.count_nonzero((came != wanted) & counts))
            for (came, wanted), counts in zip(pairs, counted, strict=True)
        )
        return float(f"{wrong / sum(map(np.count_nonzero, counted)):.3g}")

    def _pair(self, came: Array, wanted: Array) -> tuple[Array, Array]:
        """Return what is compared in a batch: labels, or numbers of the same shape."""
        picked = came if self.classes is None else np.argmax(came, axis=self.classes)
        if picked.shape != wanted.shape:
            raise CompileError(
                f"{_OPTION}: '{self.output}' has the shape {wanted.shape} in a batch where the "
                f"model gives {came.shape}."
            )
        return picked, wanted


def read_expected(
    path: str | os.PathLike[str], outputs: Mapping[str, ir.Value], batches: int
) -> list[ExpectedOutput]:
    """Return what the file at `path` says of `outputs`, by their public names, in so many batches.

    Raises `CompileError` with all that is wrong.
    """
    arrays = read_arrays(path, _OPTION)
    problems = [
        f"'{name}' is no output of the model{did_you_mean(name, outputs)}"
        for name in arrays
        if name not in outputs
    ]
    found = []
    for name in sorted(arrays.keys() & outputs.keys()):
        expected = _expected(name, arrays[name], outputs[name])
        if isinstance(expected, str):
            problems.append(expected)
        elif len(expected.parts) != batches:
            count = plural(len(expected.parts), "batch", "batches")
            problems.append(f"'{name}' has {count}, and there are {batches} to calibrate with")
        else:
            found.append(expected)
    if not arrays:
        problems.append("there is no array")
    if problems:
        raise CompileError(f"{_OPTION}: {path}: {listed(problems)}.")
    return found


def _expected(name: str, array: Array, value: ir.Value) -> ExpectedOutput | str:
    """Return what `array` says of an output, or what is wrong with it."""
    port = replace(port_of(name, value), end="output")
    if array.dtype.kind not in "fiub" or port.dtype.kind not in "fiub":
        return f"'{name}' is {array.dtype}, and the output {port.dtype}: numbers are compared"
    labels = array.dtype.kind in "iu" and port.dtype.kind == "f"
    if not labels and (array.dtype.kind == "f") != (port.dtype.kind == "f"):
        return f"'{name}' is {array.dtype}, and the output {port.dtype}"
    if not labels:
        parts = split(array, replace(port, dtype=array.dtype))
        if isinstance(parts, str):
            return parts
        return ExpectedOutput(name, str(value.name), tuple(parts))
    for axis in _axes_of_classes(port.shape):
        shape = (*port.shape[:axis], *port.shape[axis + 1 :])
        parts = split(array, replace(port, dtype=array.dtype, shape=shape))
        if isinstance(parts, str):
            continue
        if array.max() < 0:
            return f"'{name}' has no label of 0 or more"
        known = port.shape[axis]
        if known is not None and array.max() >= known:
            return f"'{name}' has the label {array.max()}, and the output {known} classes"
        return ExpectedOutput(name, str(value.name), tuple(parts), axis)
    sizes = "x".join("?" if size is None else str(size) for size in port.shape)
    found = "x".join(map(str, array.shape))
    return (
        f"'{name}' is {found or 'a number'} of {array.dtype}, and the output {sizes or 'a number'}:"
        " labels have its sizes but for that of classes, other numbers are floating-point ones"
    )


def _axes_of_classes(shape: Sequence[int | None]) -> Iterator[int]:
    """Yield where classes may stand: on the last axis, or as torch's losses have them."""
    if shape:
        yield len(shape) - 1
    if len(shape) > 2:
        yield 1
