"""Values inside of a model while it runs on samples, and how far they are from exact ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from pef import dtypes
from sambac.errors import CompileError
from sambac.graph.constants import Array
from sambac.kernels.probe import RefusedError, open_file, results_of

from .ranges import OBSERVERS, Histogram
from .samples import Batch


@contextmanager
def running(model: ir.Model, watched: Collection[str]) -> Iterator[Runner]:
    """Give what runs `model`, which stays as it is, and shows the values `watched`."""
    with TemporaryDirectory(prefix="sambac-") as folder:
        path, names = Path(folder) / "model.onnx", _written(model, watched, Path(folder))
        yield Runner(open_file(path), names)


def _written(model: ir.Model, watched: Collection[str], folder: Path) -> list[str]:
    """Write `model`, which gives out the values `watched` too, to a folder; return its arrays."""
    outputs = [*model.graph.outputs]
    shown = {str(value.name) for value in outputs}
    made = (value for node in model.graph for value in node.outputs)
    more = [value for value in made if value.name in watched and value.name not in shown]
    model.graph.outputs.extend(more)
    try:
        ir.save(model, folder / "model.onnx", external_data="weights")
    except OSError as error:
        raise CompileError(
            f"calibrate (--calibrate): the model is run from a copy in {folder.parent}, which "
            f"cannot be written: {error.strerror}."
        ) from error
    finally:
        for _ in more:
            model.graph.outputs.pop()
    return [str(value.name) for value in (*outputs, *more) if _is_plain(value)]


def _is_plain(value: ir.Value) -> bool:
    """Tell whether onnxruntime gives `value` out as an array: numpy has no bfloat16, and so on."""
    element = None if value.dtype is None else dtypes.BY_NUMBER.get(int(value.dtype))
    return element is None or element.storage == element.scalar


class Runner:
    """Runs a model on batches."""

    def __init__(self, session: ort.InferenceSession, names: Sequence[str]) -> None:
        self._session = session
        self._names = tuple(dict.fromkeys(names))
        self._inputs = {port.name for port in session.get_inputs()}

    def __call__(self, batch: Batch) -> dict[str, Array]:
        """Return the outputs and watched values by name; inputs among them, too.

        Raises `CompileError` for samples that the model does not take.
        """
        feeds = {name: array for name, array in batch.items() if name in self._inputs}
        try:
            found = results_of(self._session, self._names, feeds)
        except RefusedError as refusal:
            raise CompileError(
                f"calibrate (--calibrate): the model does not run on these samples: {refusal}."
            ) from refusal
        return {**batch, **dict(zip(self._names, found, strict=True))}


def ranges_of(
    model: ir.Model, watched: Collection[str], batches: Sequence[Batch], observer: str
) -> dict[str, tuple[float, float]]:
    """Return the range of each value in `watched` over all batches, as `observer` finds it."""
    observing = OBSERVERS[observer]
    with running(model, watched) as run:
        seen = {name: observing.seen() for name in sorted(watched)}
        for batch in batches:
            values = run(batch)
            for name, extremes in seen.items():
                extremes.see(values[name])
        if observing.choose is None:
            return {name: (each.low, each.high) for name, each in seen.items()}
        counted = {name: Histogram(extremes) for name, extremes in seen.items()}
        for batch in batches:
            values = run(batch)
            for name, histogram in counted.items():
                histogram.see(values[name])
        return {name: observing.choose(histogram) for name, histogram in counted.items()}


class Errors:
    """Relative errors of values by name, over several batches."""

    def __init__(self) -> None:
        self._off: dict[str, float] = {}
        self._length: dict[str, float] = {}

    def see(self, name: str, found: Array, exact: Array) -> None:
        """Take in another batch of a value.

        What is not finite is no error where it is found as well, and an infinite one elsewhere.
        """
        wide, off = exact.astype(np.float64), found.astype(np.float64)
        finite = np.isfinite(wide)
        same = (off == wide) | (np.isnan(off) & np.isnan(wide))
        off = np.where(finite & np.isfinite(off), off - np.where(finite, wide, 0.0), np.inf)
        off, wide = np.where(same, 0.0, off), np.where(finite, wide, 0.0)
        self._off[name] = self._off.get(name, 0.0) + float(np.vdot(off, off))
        self._length[name] = self._length.get(name, 0.0) + float(np.vdot(wide, wide))

    def of(self) -> dict[str, float]:
        """Return the errors, with three digits: more differ from host to host."""
        return {
            name: float(f"{(off / (self._length[name] or 1.0)) ** 0.5:.3g}")
            for name, off in self._off.items()
        }
