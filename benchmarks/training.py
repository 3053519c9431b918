"""Training: one step beside PyTorch, eager and compiled."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sambac
from benchmarks.contestants import THREADS, ratio
from benchmarks.models import sequences, vision
from benchmarks.models import training as models
from benchmarks.report import Cell, Report, bars, geometric_mean
from pef.graphs import data_inputs

LIMIT = 1.05
ROUNDS = 11
SLICE = 0.15
PAUSE = 0.03  # seconds for the threads of the last engine to fall asleep
ENGINES = ("eager", "compiled", "ours")


@dataclass(frozen=True)
class Entry:
    """A model to train, and how."""

    make: Callable[[], models.Trainee]
    optimizer: sambac.SGD | sambac.AdamW
    recompute: bool = False


_SGD = sambac.SGD(lr=0.01, momentum=0.9)
_ADAMW = sambac.AdamW(lr=1e-3)
ENTRIES: Mapping[str, Entry] = {
    "ResNet-18, 32..256, 16 x 64x64": Entry(vision.resnet18, _ADAMW),
    "MobileNetV2, 16..64, 16 x 64x64": Entry(vision.mobilenet, _SGD),
    "ConvNeXt, 40..320, 8 x 64x64": Entry(vision.convnext, _ADAMW),
    "U-Net, 32..128, 4 x 64x64": Entry(vision.unet, _ADAMW),
    "autoencoder, 32..128, 32 x 32x32": Entry(vision.autoencoder, _ADAMW),
    "ViT, 4x192, 16 x 64x64": Entry(vision.vit, _ADAMW),
    "MLP-Mixer, 4x192, 16 x 64x64": Entry(vision.mixer, _ADAMW),
    "GPT-2, 4x256, 8x64": Entry(sequences.gpt2, _ADAMW),
    "Llama, 4x256, 8x64": Entry(sequences.llama, _ADAMW),
    "BERT classifier, 4x256, 8x96": Entry(sequences.bert, _ADAMW),
    "LSTM language model, 2x256, 16x32": Entry(sequences.lstm_language_model, _ADAMW),
    "GRU classifier, 2x128, 32x48": Entry(sequences.gru_classifier, _ADAMW),
    "temporal convolutions, 5x64, 16x128": Entry(sequences.temporal_net, _ADAMW),
    "table with categories, 256, 512 rows": Entry(sequences.tabular, _ADAMW),
    "MLP 784-256-256-10, batch 64": Entry(
        lambda: models.perceptron((784, 256, 256, 10), batch=64), _SGD
    ),
}


def run() -> Report:
    """Race the engines on each model."""
    rows: list[list[Cell]] = []
    for name, entry in ENTRIES.items():
        times = race(name, entry)
        medians = {engine: statistics.median(values) for engine, values in times.items()}
        best = min(("eager", "compiled"), key=medians.__getitem__)
        share = ratio(times["ours"], times[best])
        rows.append([name, *(1e3 * medians[engine] for engine in ENGINES), share])
    shares = [float(row[-1]) for row in rows]
    over = [str(row[0]) for row in rows if float(row[-1]) > LIMIT]
    return Report(
        name="training",
        question="How fast is a training step?",
        method=(
            f"{THREADS} threads, each engine in a process of its own; they run in turns, {ROUNDS} "
            "rounds. PyTorch runs with the faster of the fused and the foreach optimizer, and with "
            "channels_last where that is faster. Times are medians of the rounds' medians, the "
            "ratio is the median of the rounds' ratios to that of eager and torch.compile with the "
            "lower median: where torch's own steps vary, it differs from the ratio of the medians."
        ),
        columns=["model", "eager, ms", "torch.compile, ms", "sambarun, ms", "ratio to the better"],
        rows=rows,
        summary=[
            (
                f"Geometric mean {geometric_mean(shares):.2f} of the better of PyTorch eager and "
                f"torch.compile, worst {max(shares):.2f}."
            ),
            f"Over the limit of {LIMIT}: {', '.join(over) or 'none'}.",
        ],
        plot=bars(
            [str(row[0]) for row in rows],
            shares,
            title="time of a step / the better of PyTorch eager and torch.compile",
            limit=LIMIT,
            par=1.0,
        ),
    )


def race(name: str, entry: Entry, engines: Sequence[str] = ENGINES) -> dict[str, list[float]]:
    """Return the median seconds of a step in every round, by engine."""
    with tempfile.TemporaryDirectory() as folder:
        pef = str(Path(folder) / "model.pef")
        prepare(entry, pef)
        processes = {engine: _start(engine, name, pef) for engine in engines}
        try:
            return _turns(processes)
        finally:
            for process in processes.values():
                process.kill()
                process.communicate()


def prepare(entry: Entry, pef: str) -> None:
    """Compile the model and store a batch beside it."""
    import numpy as np
    import torch

    torch.manual_seed(0)
    trainee = entry.make()
    batch = trainee.batch(0)
    options = sambac.CompileOptions(
        train=True, optimizers=(entry.optimizer,), recompute=entry.recompute
    )
    program = sambac.compile(trainee.module, options, inputs=batch)
    program.save(pef)
    ports = [port.name for port in data_inputs(program.graphs[0])]
    feeds = dict(zip(ports, (item.numpy() for item in batch), strict=True))
    np.savez(pef.replace(".pef", ".npz"), **feeds)


def _start(engine: str, name: str, pef: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.trainer", engine, name, pef, str(THREADS)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _turns(processes: Mapping[str, subprocess.Popen[str]]) -> dict[str, list[float]]:
    """Let every process measure in turns; one at a time computes."""
    counts = {
        engine: max(3, min(500, int(SLICE / statistics.median(_ask(process, 3)))))
        for engine, process in processes.items()
    }
    times: dict[str, list[float]] = {engine: [] for engine in processes}
    for _ in range(ROUNDS):
        for engine, process in processes.items():
            time.sleep(PAUSE)
            times[engine].append(statistics.median(_ask(process, counts[engine])))
    return times


def _ask(process: subprocess.Popen[str], count: int) -> list[float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    return list(json.loads(process.stdout.readline()))
