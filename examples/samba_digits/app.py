"""Handwritten digits as a SambaFlow application: app.py compile, run, test, measure-performance.

The data are inside scikit-learn: 1,797 pictures of 8 x 8 pixels with values from 0 to 16, the test
set of the UCI collection. They are put into an order drawn from seed 0; the first 1,437 (80 %) are
for training, the other 360 are held out.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import sambaflow.samba as samba
import sambaflow.samba.utils as utils
from sambaflow.samba.sambaloader import SambaLoader
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.benchmark_acc import AccuracyReport
from sambaflow.samba.utils.common import common_app_driver

Batch = tuple[samba.SambaTensor, ...]

_SEED = 0
_TRAIN = 1437
_WHITE = 16
_CLASSES = 10
_NAMES = ("image", "label")
_THRESHOLD = 1e-3


class Digits(nn.Module):
    """Pictures, float32 [N, 1, 8, 8], and digits, int64 [N]: the loss, and logits [N, 10]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Linear(2 * channels * 4 * 4, _CLASSES)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean cross entropy and what it is computed from."""
        logits = self.classify(self.features(image).flatten(1))
        return self.criterion(logits, label), logits


def add_common_args(parser: ArgumentParser) -> None:
    """Add what shapes the graph: the same for every command."""
    parser.add_argument("--channels", type=int, default=16, help="of the first convolution")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate of the first epoch")
    parser.add_argument("--weight-decay", type=float, default=1e-2)


def add_run_args(parser: ArgumentParser) -> None:
    """Add what training needs."""
    parser.add_argument("-e", "--num-epochs", type=int, default=4)
    parser.add_argument("--decay", type=float, default=0.7, help="of the learning rate, per epoch")
    parser.add_argument("--checkpoint", type=Path, help="file to write after every epoch")
    parser.add_argument("--resume", type=Path, help="checkpoint to begin with")
    parser.add_argument("--export", type=Path, help="file for the device's state: .safetensors")


def pictures() -> tuple[TensorDataset, TensorDataset]:
    """Return the rows to train on, and those held out."""
    digits = load_digits()
    order = np.random.default_rng(_SEED).permutation(len(digits.target))
    images = torch.from_numpy((digits.images[order, None] / _WHITE).astype(np.float32))
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    return (
        TensorDataset(images[:_TRAIN], labels[:_TRAIN]),
        TensorDataset(images[_TRAIN:], labels[_TRAIN:]),
    )


def training_batches(rows: Dataset[tuple[Tensor, ...]], args: Namespace, epoch: int) -> SambaLoader:
    """Return full batches of this process, in an order that the number of the epoch decides."""
    sampler = DistributedSampler(
        rows, utils.get_world_size(), utils.get_rank(), seed=_SEED, drop_last=True
    )
    sampler.set_epoch(epoch)
    loader = DataLoader(rows, args.batch_size, sampler=sampler, drop_last=True)
    return SambaLoader(loader, _NAMES)


def filled(batch: list[Tensor], size: int) -> list[Tensor]:
    """Return `batch` with rows of zeros behind it: the PEF has one batch size."""
    missing = size - len(batch[0])
    return [torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) for part in batch]


def held_out_batches(
    rows: Dataset[tuple[Tensor, ...]], size: int
) -> Iterator[tuple[Batch, Tensor]]:
    """Yield the inputs of each run, and the digits that are true of its first rows."""
    loader = SambaLoader(
        DataLoader(rows, size),
        _NAMES,
        function_hook=partial(filled, size=size),
        return_original_batch=True,
    )
    for image, label, (_, digits) in loader:
        yield (image, label), digits


def train(args: Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Train on the device, from the epoch that a checkpoint ends with."""
    rows, _ = pictures()
    begin = resume(args.resume, model, optimizer) if args.resume else 0
    outputs = utils.trace_graph(
        model, example(args), optimizer, pef=args.pef, mapping=args.mapping,
        data_parallel_mode=args.data_parallel_mode,
        distlearn_config=args.data_parallel,
    )  # fmt: skip
    for epoch in range(begin, args.num_epochs):
        losses = []
        for inputs in training_batches(rows, args, epoch):
            loss, _ = samba.session.run(
                input_tensors=inputs,
                output_tensors=outputs,
                hyperparam_dict={"lr": args.lr * args.decay**epoch},
                data_parallel=args.data_parallel,
                reduce_on_rdu=args.reduce_on_rdu,
            )
            losses.append(loss.item())
        tell(f"epoch {epoch}: loss {sum(losses) / len(losses):.6f}, last {losses[-1]:.6f}")
        if args.checkpoint and utils.is_main_process():
            save(args.checkpoint, model, optimizer, epoch + 1)
    if args.export and samba.session.device and utils.is_main_process():
        samba.session.device.executable.save(args.export)


def evaluate(args: Namespace, outputs: Batch) -> float:
    """Return which share of the pictures held out the device classifies rightly."""
    _, rows = pictures()
    right = 0
    for inputs, digits in held_out_batches(rows, args.batch_size):
        _, logits = samba.session.run(inputs, outputs, section_types=["fwd"], train=False)
        right += int((logits[: len(digits)].argmax(1) == digits).sum())
    accuracy = right / len(rows)
    tell(f"accuracy {100 * accuracy:.2f} % of {len(rows)} pictures")
    return accuracy


def run(args: Namespace, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Train and evaluate; only evaluate without an optimizer."""
    if optimizer is not None:
        train(args, model, optimizer)
        outputs = model.output_tensors
    else:
        if args.resume:
            resume(args.resume, model, None)
        outputs = utils.trace_graph(model, example(args), None, pef=args.pef)
    accuracy = evaluate(args, outputs)
    if args.acc_report_json and utils.is_main_process():
        AccuracyReport(val_accuracy=accuracy, batch_size=args.batch_size).save(args.acc_report_json)


def test(args: Namespace, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Compare the outputs of the device, and its gradients, with those of torch on the host."""
    rows, _ = pictures()
    image, label = rows[: args.batch_size]
    inputs = (
        samba.from_torch_tensor(image, name="image"),
        samba.from_torch_tensor(label, name="label"),
    )
    outputs = utils.trace_graph(model, inputs, optimizer, pef=args.pef, mapping=args.mapping)
    compare("evaluation", args, inputs, outputs, model.eval())
    if optimizer is not None:
        loss = compare("training", args, inputs, outputs, model.train())
        loss.backward()
        weight = model.classify.weight
        close("gradient", args, weight.sn_grad, weight.grad)
    print("test passed")


def compare(
    what: str, args: Namespace, inputs: Batch, outputs: Batch, model: nn.Module
) -> samba.SambaTensor:
    """Compare loss and logits in the mode that `model` is in; return the loss of the host."""
    sections = ["fwd", "bckwd"] if model.training else ["fwd"]
    found = samba.session.run(inputs, outputs, section_types=sections, train=model.training)
    host = model(*inputs)
    for name, mine, expected in zip(("loss", "logits"), found, host, strict=True):
        close(f"{what}: {name}", args, mine, expected)
    return host[0]


def close(name: str, args: Namespace, mine: Tensor, host: Tensor) -> None:
    """Raise if two tensors differ by more than the precision of the device explains."""
    utils.assert_close(mine, host, name, threshold=_THRESHOLD, visualize=args.visualize)


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
    """Write what the device holds, after `epochs` epochs; an interrupt leaves the older file."""
    samba.session.to_cpu(model, optimizer)
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epochs}
    unfinished = path.with_name(f"{path.name}.part")
    torch.save(states, unfinished)
    unfinished.replace(path)


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> int:
    """Load what `save` wrote, to be copied to the device by `trace_graph`; return the epochs."""
    states = torch.load(path)
    model.load_state_dict(states["model"])
    if optimizer is not None:
        optimizer.load_state_dict(states["optimizer"])
    return int(states["epochs"])


def example(args: Namespace) -> Batch:
    """Return inputs of the shapes, types and names that are compiled in."""
    return (
        samba.randn(args.batch_size, 1, 8, 8, name="image", batch_dim=0),
        samba.randint(_CLASSES, (args.batch_size,), name="label", batch_dim=0),
    )


def tell(line: str) -> None:
    """Print in one process of those that train together."""
    if utils.is_main_process():
        print(line, flush=True)


def main(argv: list[str]) -> None:
    """Do what the command line says."""
    args = parse_app_args(argv, common_parser_fn=add_common_args, run_parser_fn=add_run_args)
    utils.set_seed(_SEED)
    model = Digits(args.channels)
    samba.from_torch_model_(model)
    optimizer = None
    if not args.inference:
        optimizer = samba.optim.AdamW(
            model.parameters(), lr=args.lr, weight_decay=args.weight_decay
        )
    if args.command == "run":
        run(args, model, optimizer)
    elif args.command == "test":
        test(args, model, optimizer)
    else:
        common_app_driver(
            args, model, example(args), optimizer,
            name="digits", app_dir=utils.get_file_dir(__file__),
        )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
