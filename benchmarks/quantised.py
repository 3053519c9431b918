"""Fewer bits: programs for inference beside float32 ones, and what others make of the networks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import pef
import sambac
import sambarun
from benchmarks import worker, zoo
from benchmarks.contestants import REFUSED, THREADS, race, ratio, runs
from benchmarks.models import decoding, light
from benchmarks.report import Cell, Report, bars
from pef.report import report
from sambac.options import Precision

_SAMPLES = 4
_OPSET_OF_CHANNELS = 13
_DECODING = 0.35
_PEER = "openvino bf16"
_ERROR, _ERROR_OF_PICTURES = 0.028, 0.025
"""The largest errors on the samples, so that they are less than 3 % on other data."""


@dataclass(frozen=True)
class _Contest:
    """A network in one precision, and what onnxruntime makes of it, if it has something like it.

    `limit` is the most of OpenVINO's time in bfloat16 that it may take, and `max_error` what layers
    fall back to float32 for, if any do.
    """

    network: str
    precision: Precision
    entry: zoo.Entry
    peer: Callable[[zoo.Files], Path] | None = None
    limit: float | None = None
    max_error: float | None = None


def _samples(files: zoo.Files) -> list[dict[str, np.ndarray]]:
    """Inputs to calibrate with, none of which is timed.

    Pictures are of other random numbers; of words and noise, the numbers are in other orders.
    """
    rng = np.random.default_rng(1)
    with np.load(files.inputs) as stored:
        feeds = dict(stored)
    if any(np.array_equal(array, light.image()) for array in feeds.values()):
        return [{name: light.image(1 + at) for name in feeds} for at in range(_SAMPLES)]
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


def bare(path: Path) -> onnx.ModelProto:
    """Return a network without the shapes noted inside, at which onnxruntime's tools stumble.

    Older opsets have no scale for each channel; the tools write it all the same, and OpenVINO
    refuses it.
    """
    model = onnx.load(path)
    del model.graph.value_info[:]
    (opset,) = (each.version for each in model.opset_import if each.domain == "")
    if opset < _OPSET_OF_CHANNELS:
        return version_converter.convert_version(model, _OPSET_OF_CHANNELS)
    return model


def _static(files: zoo.Files, form: QuantFormat = QuantFormat.QOperator) -> Path:
    path = files.model.with_suffix(f".static-{form.name}.onnx")
    quantize_static(bare(files.model), path, _Reader(files), quant_format=form, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)  # fmt: skip
    return path


def _dynamic(files: zoo.Files) -> Path:
    path = files.model.with_suffix(".dynamic.onnx")
    quantize_dynamic(bare(files.model), path, per_channel=True, weight_type=QuantType.QInt8)
    return path


_DECODER = zoo.Entry(decoding.decoder, decoding.decoder_inputs)
CONTESTS = (
    _Contest("decoder of 100 M, one token", "int4-weights", _DECODER),
    _Contest("decoder of 100 M, one token", "int8-weights", _DECODER),
    _Contest("decoder of 100 M, one token", "int8", _DECODER, _dynamic),
    *(
        _Contest(name, "int8", zoo.MODELS[name], _dynamic, 0.8, _ERROR)
        for name in ("bert 4x768", "llama 4x512", "vit 6x384", "segformer")
    ),
    _Contest("resnet50", "int8", zoo.NETWORKS["resnet50"], _static, 1.0, _ERROR_OF_PICTURES),
    # Behind so many layers of random weights any rounding grows to the size of the result, that of
    # bfloat16, too: there is no error to keep.
    _Contest("mobilenet_v2", "int8", zoo.MODELS["mobilenet_v2"], _static, 1.0),
)


_BESIDE = 8
"""The first column of ratios to OpenVINO."""


def run() -> Report:
    """Race each network in few bits against itself in float32, and against its peers."""
    peers = (_PEER, "openvino int8") if find_spec("openvino") else ()
    rows = [_row(contest, peers) for contest in CONTESTS]
    ratios = [float(row[3]) for row in rows]
    beside = [
        f"{row[0]} takes {row[_BESIDE]:.2f} of {_PEER} (limit {contest.limit})."
        for contest, row in zip(CONTESTS, rows, strict=True)
        if contest.limit is not None and row[_BESIDE:] and not isinstance(row[_BESIDE], str)
    ]
    return Report(
        name="quantised",
        question="What do fewer bits gain in inference?",
        method=(
            f"Batch 1, random weights, {THREADS} threads each; int8 is calibrated on {_SAMPLES} "
            f"samples, and layers fall back to float32 for an error of {_ERROR} on these, of "
            f"{_ERROR_OF_PICTURES} in resnet50, so that it is below 3 % on other data; but for "
            "those of mobilenet_v2, whose random weights enlarge any rounding to the size of the "
            "result, that of bfloat16 too. Each engine has a process of its own; "
            "they run in turns, fifteen rounds of a seventh of a second, and results stay in the "
            "program's memory. Ratios are medians of the rounds' ratios: to the same network's "
            "program in float32, of onnxruntime's own quantisation (dynamic, or static with "
            "unsigned data and signed weights) to plain onnxruntime, and of the program in few "
            "bits to OpenVINO, in bfloat16 and with the convolutional networks that onnxruntime's "
            "tools quantised. Errors are those of outputs, on other data, the length of the "
            "difference over that of exact ones. Layers are those in few bits, of all that could "
            "be."
        ),
        columns=[
            *("network", "precision", "float32, ms", "ratio", "onnxruntime's ratio"),
            *("error", "layers", "file, of float32", *(f"of {peer}" for peer in peers)),
            *(f"error of {peer}" for peer in peers[:1]),
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
        options = sambac.CompileOptions(
            precision="int8", calibrate=samples, max_error=contest.max_error
        )
    program = sambac.compile(files.model, options)
    program.save(small)
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
    absent = {peer: REFUSED if peer in files_of else "-" for peer in peers}
    beside = [
        ratio(times["small"], times[peer]) if peer in times else absent[peer] for peer in peers
    ]
    return [
        contest.network,
        contest.precision,
        1e3 * statistics.median(times["float32"]),
        ratio(times["small"], times["float32"]),
        ratio(times["peer"], times["plain"]) if contest.peer is not None else "-",
        _error(_outputs(small, files.inputs), exact, files.inputs),
        _in_few_bits(program),
        small.stat().st_size / exact.stat().st_size,
        *beside,
        *(
            _error(_outputs_of_peer(files), exact, files.inputs) if peer in times else "-"
            for peer in peers[:1]
        ),
    ]


def _in_few_bits(program: pef.Program) -> str:
    """Return how many layers are in few bits, of how many."""
    layers = report(program)["layers"]
    kept = sum(row["precision"] != "float32" for row in layers)
    return f"{kept} of {len(layers)}"


Outputs = Mapping[str, np.ndarray]


def _error(found: Outputs, exact: Path, inputs: Path) -> float:
    """Return the largest relative error of an output."""
    return max(
        float(np.linalg.norm(found[name] - value) / np.linalg.norm(value))
        for name, value in _outputs(exact, inputs).items()
    )


def _outputs(program: Path, inputs: Path) -> Outputs:
    with np.load(inputs) as stored, sambarun.load(program, threads=THREADS) as executable:
        return {name: np.array(value) for name, value in executable.run(dict(stored)).items()}


def _outputs_of_peer(files: zoo.Files) -> Outputs:
    """Return what OpenVINO gives in bfloat16."""
    with np.load(files.inputs) as stored:
        found = worker.openvino("bf16", str(files.model), THREADS)(dict(stored))
    results = cast("Mapping[_Port, np.ndarray]", found)
    return {port.get_any_name(): np.array(value) for port, value in results.items()}


class _Port(Protocol):
    """A place of a model where a result comes out, as OpenVINO has them."""

    def get_any_name(self) -> str:
        """Return one of its names."""
