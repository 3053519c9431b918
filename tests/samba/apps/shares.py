"""Trains small models on a share of each batch, each in a way of its own.

shares.py FOLDER      trains every case, from its PEF below FOLDER; the weights of all cases go to
                      FOLDER/weights.<rank>
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import utils

ROWS, STEPS = 3, 6
_FEATURES, _CLASSES, _WORDS, _LENGTH = 12, 5, 20, 7
_MODES = ("normal", "inorder", "optimal")

Batch = dict[str, Tensor]


class Classifier(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(_FEATURES, 32)
        self.head = nn.Linear(32, _CLASSES)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        out = self.head(torch.tanh(self.first(image)))
        return self.criterion(out, label), out


class Tied(nn.Module):
    """Words in and out by one table, in which word 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(_WORDS, 16, padding_idx=0)
        self.mix = nn.Linear(16, 16)
        self.head = nn.Linear(16, _WORDS, bias=False)
        self.head.weight = self.embed.weight
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, word: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        out = self.head(torch.tanh(self.mix(self.embed(word))))
        return self.criterion(out.flatten(0, 1), target.flatten()), out


class Padded(nn.Module):
    """A sum of words, in which word 0 is padding and stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(_WORDS, 16, padding_idx=0)
        self.head = nn.Linear(16, _CLASSES)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, word: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        out = self.head(self.embed(word).sum(1))
        return self.criterion(out, label), out


def batch(model: type[nn.Module], number: int, rows: int) -> Batch:
    """The batch `number` for a model, of all processes together."""
    generator = torch.Generator().manual_seed(number)
    words = torch.randint(_WORDS, (rows, _LENGTH), generator=generator)
    words *= torch.randint(2, words.shape, generator=generator)  # half of it is padding
    if model is Tied:
        return {"word": words, "target": torch.randint(_WORDS, words.shape, generator=generator)}
    label = torch.randint(_CLASSES, (rows,), generator=generator)
    if model is Padded:
        return {"word": words, "label": label}
    return {"image": torch.randn(rows, _FEATURES, generator=generator), "label": label}


@dataclass(frozen=True)
class Case:
    """What trains: a step is of `micro` batches; gradients are clipped to `clip` if it is not 0.

    `resume` says how it is interrupted half way: process 0 saves, and `both` or the `first` load.
    `program` is the case whose PEF it has, where that is not its own.
    """

    optimizer: Callable[..., torch.optim.Optimizer]
    model: type[nn.Module] = Classifier
    clip: float = 0
    micro: int = 1
    resume: str = ""
    program: str = ""
    config: Mapping[str, object] = field(default_factory=dict)


def _plain(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return samba.optim.SGD(parameters, lr=0.5)


def _momentum(parameters: Iterable[Tensor], **more: float) -> torch.optim.Optimizer:
    return samba.optim.SGD(
        parameters, lr=0.2, momentum=0.9, weight_decay=1e-2, nesterov=True, **more
    )


def _adam(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return samba.optim.Adam(parameters, lr=1e-2)


def _adamw(parameters: Iterable[Tensor], **more: float) -> torch.optim.Optimizer:
    return samba.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1, **more)


_SUMS = {"gradient_accumulation": True}

CASES = {
    "sgd": Case(_plain),
    "momentum": Case(_momentum),
    "adam": Case(_adam),
    "adamw": Case(_adamw),
    "clipped": Case(_momentum, clip=0.2),
    "accumulated": Case(_momentum, micro=2, config=_SUMS),
    "accumulated and clipped": Case(_adamw, micro=3, clip=0.3, config=_SUMS),
    "tied": Case(_adamw, Tied),
    "padded": Case(_momentum, Padded),
    "mp1": Case(_momentum, config={"graphamp_preset": "mp1"}),
    "mp4": Case(_momentum, config={"graphamp_preset": "mp4"}),
    "resumed by both": Case(_adamw, resume="both", program="adamw"),
    "resumed by the first": Case(_momentum, resume="first", program="momentum"),
}


def compiled(folder: str, name: str, rows: int, *, together: bool) -> str:
    """Compile a case for batches of `rows`, for one process or several; return the path."""
    case = CASES[name]
    model, optimizer = _built(case, 0)
    return samba.session.compile(
        model,
        _named(batch(case.model, 0, rows)),
        optimizer,
        name=name,
        config_dict={"output_folder": folder, "data_parallel": together, **case.config},
    )


def trained(pef: str, name: str, rank: int, size: int, rows: int) -> dict[str, Tensor]:
    """Train a case on the share of process `rank` of `size`; return the weights."""
    case = CASES[name]
    spans = [range(STEPS // 2), range(STEPS // 2, STEPS)] if case.resume else [range(STEPS)]
    path = f"{pef}.checkpoint"
    for part, steps in enumerate(spans):
        model, optimizer = _built(case, rank + part)  # other weights in each process
        if part and (case.resume == "both" or rank == 0):
            states = torch.load(path)
            model.load_state_dict(states["model"])
            optimizer.load_state_dict(states["optimizer"])
        outputs = utils.trace_graph(model, _example(case, rows), optimizer, pef=pef)
        for step in steps:
            _step(case, outputs, step, rows, slice(rank * rows, (rank + 1) * rows), size)
        samba.session.to_cpu(model, optimizer)
        if not part and len(spans) > 1:
            if rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
            if size > 1:
                torch.distributed.barrier()
    return {key: tensor.torch().detach().clone() for key, tensor in model.named_parameters()}


def on_the_host(name: str, size: int) -> dict[str, Tensor]:
    """Train a case with torch on the joined batches of `size` processes; return the weights."""
    case = CASES[name]
    torch.manual_seed(0)
    model = case.model()
    optimizer = case.optimizer(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        for number in range(step * case.micro, (step + 1) * case.micro):
            model(**batch(case.model, number, ROWS * size))[0].backward()
        if case.clip:
            nn.utils.clip_grad_norm_(model.parameters(), case.clip)
        optimizer.step()
    return {key: tensor.detach() for key, tensor in model.named_parameters()}


def _built(case: Case, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = samba.from_torch_model(case.model())
    more = {"max_grad_norm": case.clip} if case.clip else {}
    return model, case.optimizer(model.parameters(), **more)


def _step(
    case: Case, outputs: tuple[samba.SambaTensor, ...], step: int, rows: int, mine: slice, size: int
) -> None:
    mode = _MODES[step % len(_MODES)]
    numbers = range(step * case.micro, (step + 1) * case.micro)
    for number in numbers:
        share = {key: t[mine] for key, t in batch(case.model, number, rows * size).items()}
        types: list[str] = []
        if case.micro > 1:
            first = ["zerograd"] if number == numbers[0] else []
            norm = ["gradnorm"] if case.clip else []
            last = [*norm, "opt"] if number == numbers[-1] else []
            types = [*first, "fwd", "bckwd", *last]
        samba.session.run(
            _named(share), outputs, section_types=types,
            data_parallel=size > 1, data_parallel_mode=mode,
        )  # fmt: skip


def _example(case: Case, rows: int) -> tuple[samba.SambaTensor, ...]:
    return _named(batch(case.model, 0, rows))


def _named(tensors: Batch) -> tuple[samba.SambaTensor, ...]:
    return tuple(samba.from_torch_tensor(tensor, name=key) for key, tensor in tensors.items())


if __name__ == "__main__":
    folder = sys.argv[1]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    found = {}
    for name in CASES:
        program = CASES[name].program or name
        found[name] = trained(f"{folder}/{program}/{program}.pef", name, rank, size, ROWS)
        samba.session.reset()
    torch.save(found, f"{folder}/weights.{rank}")
