"""Training through `pybuda` beside torch in float64, with gradients summed as PyBuda sums them."""

from __future__ import annotations

import copy
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from pybuda_runs import later
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import optimizers

Pair = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
WAIT = 60


def perceptron(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def batches(count: int, size: int = 3, classes: bool = False) -> list[Pair]:
    """Inputs of `perceptron`, and targets: numbers, or classes."""
    torch.manual_seed(100)
    targets = (lambda: torch.randint(0, 4, (size,))) if classes else (lambda: torch.randn(size, 4))
    return [(torch.randn(size, 6), targets()) for _ in range(count)]


def push(pairs: Sequence[Pair], first: pybuda.Device, last: pybuda.Device | None = None) -> None:
    for inputs, targets in pairs:
        first.push_to_inputs(inputs)
        (last or first).push_to_target_inputs(targets)


@dataclass
class Peer:
    """Torch's own training of a copy of `module` in float64.

    The loss is that of each sample, as on a `TTDevice`, or of the whole microbatch.
    """

    module: nn.Module
    loss: Loss
    optimizer: torch.optim.Optimizer
    by_sample: bool = True

    def losses(self, pair: Pair) -> torch.Tensor:
        inputs, targets = (t.double() if t.is_floating_point() else t for t in pair)
        if not self.by_sample:
            return self.loss(self.module(inputs), targets).reshape(1)
        rows = range(len(inputs))
        return torch.stack(
            [self.loss(self.module(inputs[i : i + 1]), targets[i : i + 1]).sum() for i in rows]
        )

    def step(self, pairs: Sequence[Pair]) -> list[torch.Tensor]:
        """Make one step of several microbatches; return their losses."""
        self.optimizer.zero_grad()
        found = [self.losses(pair) for pair in pairs]
        for losses in found:
            losses.sum().backward()
        self.optimizer.step()
        return [losses.detach() for losses in found]

    def named(self) -> dict[str, torch.Tensor]:
        return {name: item.detach() for name, item in self.module.named_parameters()}


def peer_of(
    module: nn.Module,
    loss: Loss,
    optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
    by_sample: bool = True,
) -> Peer:
    twin = copy.deepcopy(module).double()
    return Peer(twin, loss, optimizer(twin.parameters()), by_sample)


def near(found: torch.Tensor, expected: torch.Tensor, share: float = 1e-5) -> None:
    """Within a share of the largest number of `expected`."""
    assert found.shape == expected.shape
    most = float(expected.abs().max())
    assert float((found.double() - expected).abs().max()) <= share * (most + 1e-3)


def taken(losses: queue.Queue[object]) -> torch.Tensor:
    """The next losses, a number for each sample, or one for a microbatch on a CPU."""
    item = losses.get(timeout=WAIT)
    if isinstance(item, tuple):
        assert all(isinstance(number, float) for number in item)
        return torch.tensor(item, dtype=torch.float64)
    assert isinstance(item, list)
    (tensor,) = item
    return tensor.value().reshape(-1)


def is_checkpoint_of(checkpoint: object, *peers: Peer, share: float = 1e-4) -> None:
    assert isinstance(checkpoint, list)
    assert len(checkpoint) == len(peers)
    for part, peer in zip(checkpoint, peers, strict=True):
        expected = peer.named()
        assert part.keys() == expected.keys()
        for name, tensor in part.items():
            near(tensor.value(), expected[name], share)


class Head(nn.Module):
    """What follows `perceptron`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.out = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(functional.gelu(x))
        return found


def on(kind: str, name: str, module: nn.Module) -> pybuda.Device:
    placed = later(module, f"{name}_module")
    if kind == "cpu":
        return pybuda.CPUDevice(name, lambda m: torch.optim.SGD(m.parameters(), 0.1), module=placed)
    optimizer = optimizers.SGD(0.1, device_params=True)
    return pybuda.TTDevice(name, module=placed, optimizer=optimizer)


def twin_of(*modules: nn.Module, by_sample: bool) -> Peer:
    whole = nn.Sequential(*modules)
    return peer_of(whole, functional.mse_loss, lambda p: torch.optim.SGD(p, 0.1), by_sample)


def parts_of(checkpoint: object, *prefixes: str) -> dict[str, torch.Tensor]:
    """The parameters of all devices, by the names that they have in a sequence of all modules."""
    assert isinstance(checkpoint, list)
    return {
        f"{prefix}.{name}": tensor.value()
        for prefix, part in zip(prefixes, checkpoint, strict=True)
        for name, tensor in part.items()
    }


def l1(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.l1_loss(prediction, target)


def sgd(rate: float = 0.05) -> optimizers.Optimizer:
    return optimizers.SGD(rate, device_params=True)


def device_with(
    module: nn.Module, loss: object = None, optimizer: optimizers.Optimizer | None = None
) -> pybuda.TTDevice:
    device = pybuda.TTDevice("tt0", module=later(module, "model"), optimizer=optimizer or sgd())
    device.place_loss_module(loss or pybuda.op.loss.L1Loss("l1"))
    return device


def peer(module: nn.Module, rate: float = 0.05) -> Peer:
    return peer_of(module, l1, lambda p: torch.optim.SGD(p, rate))


class Classifier(pybuda.PyBudaModule):
    """Softmax regression; its shift is no parameter that trains."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        torch.manual_seed(1)
        self.weight = pybuda.Parameter(torch.randn(6, 4))
        self.bias = pybuda.Parameter(torch.randn(1, 4))
        self.shift = pybuda.Parameter(torch.full((1, 4), 0.5), requires_grad=False)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Matmul("logits", x, self.weight, bias=self.bias) + self.shift
