"""Handwritten digits as a PyBuda program: it trains, saves what it has learned, and evaluates.

The data are inside scikit-learn: 1,797 pictures of 8 x 8 pixels with values from 0 to 16, the test
set of the UCI collection. They are put into an order drawn from seed 0; the first 1,437 (80 %) are
for training, the other 360 are held out.
"""

from __future__ import annotations

import queue
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import pybuda

_SEED = 0
_TRAIN = 1437
_WHITE = 16
_CLASSES = 10
_NUMBERS = (
    ("Float32", None, None),
    ("Float16_b, HiFi3", pybuda.DataFormat.Float16_b, pybuda.MathFidelity.HiFi3),
    ("Bfp8_b, HiFi2", pybuda.DataFormat.Bfp8_b, pybuda.MathFidelity.HiFi2),
    ("Bfp4_b, LoFi", pybuda.DataFormat.Bfp4_b, pybuda.MathFidelity.LoFi),
)
"""What the device may hold tensors in, and how much of them its multiplier takes."""


@dataclass(frozen=True)
class Rows:
    """Pictures, float32 [N, 1, 8, 8], and the digits on them, int64 [N]."""

    images: Tensor
    labels: Tensor

    def batches(self, size: int, epoch: int) -> list[Rows]:
        """Return full batches, in an order that the number of the epoch decides."""
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(epoch))
        full = [rows for rows in order.split(size) if len(rows) == size]
        return [Rows(self.images[rows], self.labels[rows]) for rows in full]


class Exponential(pybuda.schedulers.LearningRateScheduler):
    """Multiplies the learning rate by `decay` after each epoch."""

    def __init__(self, optimizer: pybuda.optimizers.Optimizer, decay: float) -> None:
        super().__init__(optimizer)
        self.decay = decay

    def get_lr(self) -> float:
        """Return the learning rate of the next epoch."""
        return self.optimizer.learning_rate * self.decay


class Pipeline(NamedTuple):
    """The device that has the network, and the one that has the loss: it may be the same."""

    first: pybuda.Device
    last: pybuda.Device


def network(channels: int) -> nn.Sequential:
    """Return what makes logits [N, 10] of pictures [N, 1, 8, 8].

    It normalizes each picture by itself: a TTDevice never sees two of them at once.
    """
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.GroupNorm(1, channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.GroupNorm(1, 2 * channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * 4 * 4, _CLASSES),
    )


def pictures() -> tuple[Rows, Rows]:
    """Return the rows to train on, and those held out."""
    digits = load_digits()
    order = np.random.default_rng(_SEED).permutation(len(digits.target))
    images = torch.from_numpy((digits.images[order, None] / _WHITE).astype(np.float32))
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    return Rows(images[:_TRAIN], labels[:_TRAIN]), Rows(images[_TRAIN:], labels[_TRAIN:])


def placed(args: Namespace, model: nn.Module) -> Pipeline:
    """Put the network on a TTDevice, and the loss there too or on a CPUDevice."""
    optimizer = pybuda.optimizers.AdamW(args.lr, device_params=True)
    first = pybuda.TTDevice(
        "tt0",
        module=pybuda.PyTorchModule("network", model),
        optimizer=optimizer,
        scheduler=Exponential(optimizer, args.decay),
    )
    last = pybuda.CPUDevice("cpu0") if args.loss == "cpu" else first
    last.place_loss_module(pybuda.PyTorchModule("loss", nn.CrossEntropyLoss()))
    return Pipeline(first, last)


def train(pipeline: Pipeline, batches: list[Rows]) -> tuple[float, dict[str, Tensor]]:
    """Train for an epoch; return the mean loss, and the parameters of the network after it."""
    for batch in batches:
        pipeline.first.push_to_inputs(batch.images)
        pipeline.last.push_to_target_inputs(batch.labels)
    checkpoints = pybuda.run_training(steps=len(batches))
    losses = pybuda.get_loss_queue()
    found = [mean_loss(losses.get()) for _ in batches]
    parameters = checkpoints.get()[0]
    return sum(found) / len(found), {name: each.value() for name, each in parameters.items()}


def mean_loss(item: object) -> float:
    """Return the loss of a microbatch: a CPUDevice gives one number, a TTDevice one per sample."""
    (loss,) = item
    return float(loss.value().mean()) if isinstance(loss, pybuda.Tensor) else loss


def right(results: queue.Queue[object], rows: Rows) -> float:
    """Return which share of the pictures the next results classify rightly."""
    (logits,) = results.get()
    return float((logits.value().argmax(1) == rows.labels).float().mean())


def learn(args: Namespace, model: nn.Module, rows: Rows, held_out: Rows) -> dict[str, Tensor]:
    """Train, evaluate after every epoch on the same device, and return the parameters."""
    pipeline = placed(args, model)
    for epoch in range(args.epochs):
        loss, parameters = train(pipeline, rows.batches(args.batch_size, epoch))
        pipeline.first.push_to_inputs(held_out.images)
        share = right(pybuda.run_inference(), held_out)
        print(f"epoch {epoch}: loss {loss:.4f}, {100 * share:.2f} % right", flush=True)
    return parameters


def compare(model: nn.Module, rows: Rows) -> None:
    """Print how right a trained network is with the numbers of several devices."""
    print("numbers of the device  right")
    for name, form, fidelity in _NUMBERS:
        pybuda.pybuda_reset()
        pybuda.set_configuration_options(default_df_override=form, math_fidelity=fidelity)
        module = pybuda.PyTorchModule("network", model)
        results = pybuda.run_inference(module, inputs=[(rows.images,)])
        print(f"{name:<21}  {100 * right(results, rows):.2f} %", flush=True)


def arguments(argv: list[str]) -> Namespace:
    """Return what the command line says."""
    parser = ArgumentParser(description="Train on handwritten digits through PyBuda.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--channels", type=int, default=8, help="of the first convolution")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate of the first epoch")
    parser.add_argument("--decay", type=float, default=0.7, help="of the learning rate, per epoch")
    parser.add_argument("--loss", choices=["tt", "cpu"], default="tt", help="device of the loss")
    parser.add_argument("--save", type=Path, help="file for the parameters, as torch.save writes")
    args = parser.parse_args(argv)
    if args.epochs < 1:
        parser.error(f"--epochs is {args.epochs}; at least 1 is needed")
    return args


def main(argv: list[str]) -> None:
    """Do what the command line says."""
    args = arguments(argv)
    rows, held_out = pictures()
    print(f"{len(rows.labels)} pictures to train on, {len(held_out.labels)} held out")
    torch.manual_seed(_SEED)
    model = network(args.channels)
    model.load_state_dict(learn(args, model, rows, held_out))
    if args.save:
        torch.save(model.state_dict(), args.save)
    compare(model, held_out)
    pybuda.pybuda_reset()


if __name__ == "__main__":
    main(sys.argv[1:])
