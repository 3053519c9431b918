"""Fewer bits: programs for inference beside float32 ones, and onnxruntime's own quantisation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import sambac
import sambarun
from benchmarks import zoo
from benchmarks.contestants import THREADS, race, ratio
from benchmarks.models import decoding, light
from benchmarks.report import Cell, Report, bars
from sambac.options import Precision

_SAMPLES = 4
_DECODING = 0.35


@dataclass(frozen=True)
class _Contest:
    """A network in one precision, and what onnxruntime makes of it, if it has something like it."""

    network: str
    precision: Precision
    entry: zoo.Entry
    peer: Callable[[zoo.Files, Path], Path] | None = None
    samples: Callable[[], Mapping[str, np.ndarray]] | None = None


def _images() -> list[np.ndarray]:
    """Pictures to calibrate with, none of which is timed."""
    return [light.image(seed) for seed in range(1, 1 + _SAMPLES)]


class _Reader(CalibrationDataReader):
    def __init__(self, name: str) -> None:
        self._batches: Iterator[dict[str, np.ndarray]] = iter(
            [{name: picture} for picture in _images()]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch."""
        return next(self._batches, None)


_PICTURES = "gpu_0/data_0"


def _static(files: zoo.Files, calibrated: Path) -> Path:
    path = files.model.with_suffix(".static.onnx")
    quantize_static(files.model, path, _Reader(_PICTURES), quant_format=QuantFormat.QOperator,
                    per_channel=True, activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8)  # fmt: skip
    return path


def _dynamic(files: zoo.Files, calibrated: Path) -> Path:
    path = files.model.with_suffix(".dynamic.onnx")
    quantize_dynamic(files.model, path, per_channel=True, weight_type=QuantType.QInt8)
    return path


_DECODER = zoo.Entry(decoding.decoder, decoding.decoder_inputs)
CONTESTS = (
    _Contest("decoder of 100 M, one token", "int4-weights", _DECODER),
    _Contest("decoder of 100 M, one token", "int8-weights", _DECODER),
    _Contest("decoder of 100 M, one token", "int8", _DECODER, _dynamic),
    _Contest("bert", "int8", zoo.NETWORKS["bert"], _dynamic),
    _Contest("resnet50", "int8", zoo.NETWORKS["resnet50"], _static,
             lambda: {_PICTURES: np.concatenate(_images())}),
)  # fmt: skip


def run() -> Report:
    """Race each network in few bits against itself in float32."""
    rows = [_row(contest) for contest in CONTESTS]
    ratios = [float(row[3]) for row in rows]
    return Report(
        name="quantised",
        question="What do fewer bits gain in inference?",
        method=(
            f"Batch 1, random weights, {THREADS} threads each; convolutions are calibrated on "
            f"{_SAMPLES} pictures. Each engine has a process of its own; they run in turns, "
            "fifteen rounds of a seventh of a second, and results stay in the program's memory. "
            "Ratios are medians of the rounds' ratios: to the same network's program in float32, "
            "and of onnxruntime's own quantisation (dynamic, or static with unsigned data and "
            "signed weights) to plain onnxruntime. The error is that of outputs, the length of the "
            "difference over that of exact ones."
        ),
        columns=[
            *("network", "precision", "float32, ms", "ratio", "onnxruntime's ratio"),
            *("error", "file, of float32"),
        ],
        rows=rows,
        summary=[f"One token takes {ratios[0]:.2f} of float32 in int4 (limit {_DECODING})."],
        plot=bars(
            [f"{row[0]}\n{row[1]}" for row in rows],
            ratios,
            title="time in few bits / time in float32",
            limit=_DECODING,
            par=1.0,
        ),
    )


def _row(contest: _Contest) -> list[Cell]:
    files = zoo.make(contest.network.split()[0], contest.entry)
    exact, small = files.pef(), files.model.with_suffix(f".{contest.precision}.pef")
    samples = None
    if contest.samples is not None:
        samples = files.model.with_name("samples.npz")
        np.savez(samples, **contest.samples())  # type: ignore[arg-type]
    options = sambac.CompileOptions(precision=contest.precision, calibrate=samples)
    sambac.compile(files.model, options).save(small)
    engines = {"float32": ("command-kept", exact), "small": ("command-kept", small)}
    if contest.peer is not None:
        engines |= {"plain": ("plain", files.model), "peer": ("plain", contest.peer(files, small))}
    times = race(engines, files.inputs)
    peer = ratio(times["peer"], times["plain"]) if contest.peer is not None else "-"
    return [
        contest.network,
        contest.precision,
        1e3 * statistics.median(times["float32"]),
        ratio(times["small"], times["float32"]),
        peer,
        _error(small, exact, files.inputs),
        small.stat().st_size / exact.stat().st_size,
    ]


def _error(small: Path, exact: Path, inputs: Path) -> float:
    """Return the largest relative error of an output."""
    with np.load(inputs) as stored:
        feeds = dict(stored)
    found = []
    for path in (small, exact):
        with sambarun.load(path, threads=THREADS) as executable:
            found.append({k: np.array(v) for k, v in executable.run(feeds).items()})
    return max(
        float(np.linalg.norm(found[0][name] - value) / np.linalg.norm(value))
        for name, value in found[1].items()
    )
