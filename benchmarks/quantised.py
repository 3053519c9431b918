"""Fewer bits: programs for inference beside float32 ones, and what others make of the networks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
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
from benchmarks.contestants import THREADS, race, ratio, runs
from benchmarks.models import decoding
from benchmarks.report import Cell, Report, bars
from sambac.options import Precision

_SAMPLES = 4
_DECODING = 0.35
_PEER = "openvino bf16"


@dataclass(frozen=True)
class _Contest:
    """A network in one precision, and what onnxruntime makes of it, if it has something like it.

    `limit` is the most of OpenVINO's time in bfloat16 that it may take.
    """

    network: str
    precision: Precision
    entry: zoo.Entry
    peer: Callable[[zoo.Files], Path] | None = None
    limit: float | None = None


def _samples(files: zoo.Files) -> list[dict[str, np.ndarray]]:
    """Inputs to calibrate with, none of which is timed: the numbers of those, in other orders."""
    rng = np.random.default_rng(1)
    with np.load(files.inputs) as stored:
        feeds = dict(stored)
    return [
        {name: rng.permutation(array.reshape(-1)).reshape(array.shape) for name, array in each}
        for each in [feeds.items()] * _SAMPLES
    ]


class _Reader(CalibrationDataReader):
    def __init__(self, files: zoo.Files) -> None:
        self._batches: Iterator[dict[str, np.ndarray]] = iter(_samples(files))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch."""
        return next(self._batches, None)


def _bare(files: zoo.Files) -> onnx.ModelProto:
    """Return a network without the shapes noted inside, at which onnxruntime's tools stumble."""
    model = onnx.load(files.model)
    del model.graph.value_info[:]
    return model


def _static(files: zoo.Files, form: QuantFormat = QuantFormat.QOperator) -> Path:
    path = files.model.with_suffix(f".static-{form.name}.onnx")
    quantize_static(_bare(files), path, _Reader(files), quant_format=form, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)  # fmt: skip
    return path


def _dynamic(files: zoo.Files) -> Path:
    path = files.model.with_suffix(".dynamic.onnx")
    quantize_dynamic(_bare(files), path, per_channel=True, weight_type=QuantType.QInt8)
    return path


_DECODER = zoo.Entry(decoding.decoder, decoding.decoder_inputs)
CONTESTS = (
    _Contest("decoder of 100 M, one token", "int4-weights", _DECODER),
    _Contest("decoder of 100 M, one token", "int8-weights", _DECODER),
    _Contest("decoder of 100 M, one token", "int8", _DECODER, _dynamic),
    *(
        _Contest(name, "int8", zoo.MODELS[name], _dynamic, 0.8)
        for name in ("bert 4x768", "llama 4x512", "vit 6x384", "segformer")
    ),
    _Contest("resnet50", "int8", zoo.NETWORKS["resnet50"], _static, 1.0),
    _Contest("mobilenet_v2", "int8", zoo.MODELS["mobilenet_v2"], _static, 1.0),
)


def run() -> Report:
    """Race each network in few bits against itself in float32, and against its peers."""
    peers = (_PEER, "openvino int8") if find_spec("openvino") else ()
    rows = [_row(contest, peers) for contest in CONTESTS]
    ratios = [float(row[3]) for row in rows]
    beside = [
        f"{row[0]} takes {row[7]:.2f} of {_PEER} (limit {contest.limit})."
        for contest, row in zip(CONTESTS, rows, strict=True)
        if contest.limit is not None and row[7:] and row[7] != "-"
    ]
    return Report(
        name="quantised",
        question="What do fewer bits gain in inference?",
        method=(
            f"Batch 1, random weights, {THREADS} threads each; int8 is calibrated on {_SAMPLES} "
            "samples, and no layer falls back to float32. Each engine has a process of its own; "
            "they run in turns, fifteen rounds of a seventh of a second, and results stay in the "
            "program's memory. Ratios are medians of the rounds' ratios: to the same network's "
            "program in float32, of onnxruntime's own quantisation (dynamic, or static with "
            "unsigned data and signed weights) to plain onnxruntime, and of the program in few "
            "bits to OpenVINO, in bfloat16 and with the convolutional networks that onnxruntime's "
            "tools quantised. The error is that of outputs, on other data, the length of the "
            "difference over that of exact ones."
        ),
        columns=[
            *("network", "precision", "float32, ms", "ratio", "onnxruntime's ratio"),
            *("error", "file, of float32", *(f"of {peer}" for peer in peers)),
        ],
        rows=rows,
        summary=[
            f"One token takes {ratios[0]:.2f} of float32 in int4 (limit {_DECODING}).",
            *beside,
        ],
        plot=bars(
            [f"{row[0]}\n{row[1]}" for row in rows],
            ratios,
            title="time in few bits / time in float32",
            limit=_DECODING,
            par=1.0,
        ),
    )


def _row(contest: _Contest, peers: tuple[str, ...]) -> list[Cell]:
    files = zoo.make(f"few-bits-{contest.network.split()[0]}", contest.entry)
    exact, small = files.pef(), files.model.with_suffix(f".{contest.precision}.pef")
    options = sambac.CompileOptions(precision=contest.precision)
    if contest.precision == "int8":
        samples = files.model.with_name("samples.npz")
        given = _samples(files)
        stacked = {name: np.stack([each[name] for each in given]) for name in given[0]}
        # The stubs take keywords for `allow_pickle`, too.
        np.savez(samples, **stacked)  # type: ignore[arg-type]
        options = sambac.CompileOptions(precision="int8", calibrate=samples)
    sambac.compile(files.model, options).save(small)
    engines = {"float32": ("command-kept", exact), "small": ("command-kept", small)}
    if contest.peer is not None:
        engines |= {"plain": ("plain", files.model), "peer": ("plain", contest.peer(files))}
    files_of = {_PEER: files.model}
    if peers and contest.peer is _static:
        files_of["openvino int8"] = _static(files, QuantFormat.QDQ)
    engines |= {
        peer: (_PEER, files_of[peer])
        for peer in peers
        if peer in files_of and runs(_PEER, files_of[peer], files.inputs)
    }
    times = race(engines, files.inputs)
    beside = [ratio(times["small"], times[peer]) if peer in times else "-" for peer in peers]
    return [
        contest.network,
        contest.precision,
        1e3 * statistics.median(times["float32"]),
        ratio(times["small"], times["float32"]),
        ratio(times["peer"], times["plain"]) if contest.peer is not None else "-",
        _error(small, exact, files.inputs),
        small.stat().st_size / exact.stat().st_size,
        *beside,
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
