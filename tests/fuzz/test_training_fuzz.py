"""Random networks train as in PyTorch; a failure names its seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sambac
import sambarun

Make = Callable[[random.Random, int], tuple[nn.Module, int]]


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Gate(nn.Module):
    """One half of the features scales the other."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1)
        return a * torch.sigmoid(b)


def _conv(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    out = rng.choice([4, 6, 8])
    groups = rng.choice([g for g in (1, 2) if width % g == 0 and out % g == 0])
    size, dilation = rng.choice([(1, 1), (3, 1), (3, 2), (5, 1)])
    padding = dilation * (size // 2)
    conv = nn.Conv2d(
        width, out, size, rng.choice([1, 1, 2]), padding, dilation, groups, rng.random() < 0.7
    )
    return conv, out


def _up(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    out = rng.choice([4, 6])
    return nn.ConvTranspose2d(width, out, rng.choice([2, 3]), stride=2), out


def _norm(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    kinds = [
        nn.BatchNorm2d(width),
        nn.GroupNorm(2 if width % 2 == 0 else 1, width),
        nn.InstanceNorm2d(width, affine=True),
    ]
    return rng.choice(kinds), width


def _activation(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    kinds = [
        nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh(), nn.ELU(), nn.LeakyReLU(0.1), nn.Mish(),
        nn.Softplus(), nn.Hardswish(), nn.PReLU(),
    ]  # fmt: skip
    return rng.choice(kinds), width


def _pool(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    kinds = [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1)]
    return rng.choice(kinds), width


def _gate(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    return (Gate(), width // 2) if width % 2 == 0 and width > 2 else (nn.Identity(), width)


def _residual(rng: random.Random, width: int) -> tuple[nn.Module, int]:
    conv = nn.Conv2d(width, width, 3, padding=1)
    return Residual(nn.Sequential(conv, _activation(rng, width)[0])), width


_MAKERS: tuple[Make, ...] = (
    _conv,
    _conv,
    _up,
    _norm,
    _activation,
    _activation,
    _pool,
    _gate,
    _residual,
)


class Images(nn.Module):
    """Random layers over images, a linear head, and a loss in which every gradient counts."""

    shape = (4, 3, 16, 16)

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        layers, width = [], self.shape[1]
        for _ in range(rng.randint(3, 7)):
            layer, width = rng.choice(_MAKERS)(rng, width)
            layers.append(layer)
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return ((self.head(self.body(x).mean((2, 3))) - target) ** 2).sum()


class Recurrent(nn.Module):
    """A recurrent layer that gives out only its sequence."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Attention(nn.Module):
    """Every place looks at every place, or at those before it."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 2, batch_first=True)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool() if self.causal else None
        return x + self.inner(x, x, x, attn_mask=mask, need_weights=False)[0]


class Along(nn.Module):
    """An operator along the sequence: sums so far, shares, shifts, the largest."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        forms: tuple[Callable[[], Tensor], ...] = (
            lambda: x.cumsum(1),
            lambda: x * x.softmax(1),
            lambda: x - x.roll(1, 1),
            lambda: x - x.amax(1, keepdim=True),
            lambda: torch.einsum("btd,bsd->bts", x, x).tanh() @ x,
            lambda: x[:, torch.tensor([0, 0, 2, 1, 3])],
            lambda: x.clamp(-1.0, 1.0) + torch.where(x > 0, x, 0.1 * x),
        )
        return forms[self.kind]()


class Sequences(nn.Module):
    """Random layers over sequences, and a loss in which every gradient counts."""

    shape = (3, 5, 8)

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.body = nn.Sequential(*(self._layer(rng) for _ in range(rng.randint(3, 6))))
        self.head = nn.Linear(self.shape[2], 5)

    def _layer(self, rng: random.Random) -> nn.Module:
        d = self.shape[2]
        both, cell = rng.random() < 0.5, rng.choice([nn.LSTM, nn.GRU, nn.RNN])
        makers: tuple[Callable[[], nn.Module], ...] = (
            lambda: nn.Linear(d, d),
            lambda: nn.LayerNorm(d),
            lambda: nn.RMSNorm(d),
            lambda: _activation(rng, d)[0] if not rng.random() < 0.2 else nn.Softmax(-1),
            lambda: Attention(d, rng.random() < 0.5),
            lambda: Recurrent(cell(d, d // 2 if both else d, bidirectional=both, batch_first=True)),
            lambda: Along(rng.randrange(7)),
            lambda: nn.Conv1d(self.shape[1], self.shape[1], 3, padding=1),
            lambda: nn.TransformerEncoderLayer(d, 2, 16, 0.0, batch_first=True),
        )
        return rng.choice(makers)()

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return ((self.head(self.body(x).mean(1)) - target) ** 2).sum()


Network = Images | Sequences


def _check(kind: type[Network], seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    network = kind(rng)
    x, target = torch.randn(kind.shape), torch.randn(kind.shape[0], 5)
    level = rng.choice(["O0", "O1", "O3"])
    options = sambac.CompileOptions(level=level, train=True)  # type: ignore[arg-type]
    program = sambac.compile(network, options, inputs=(x, target))
    single, _ = _gradients(network, torch.float32, x, target)
    wanted, value = _gradients(network, torch.float64, x, target)
    with sambarun.load(program) as executable:
        found = executable.step({"x": x.numpy(), "target": target.numpy()})
        gradients = executable.read(*(f"{name}__grad" for name in wanted))
    what = f"seed {seed} at {level}: {network}"
    assert abs(float(next(iter(found.values()))) - value) <= 1e-5 * max(1.0, abs(value)), what
    largest = max(float(np.abs(gradient).max()) for gradient in wanted.values())
    for name, gradient in wanted.items():
        error = float(np.abs(gradients[f"{name}__grad"] - gradient).max())
        scale = max(float(np.abs(gradient).max()), 1e-2 * largest)
        theirs = float(np.abs(single[name] - gradient).max())  # large where gradients cancel
        limit = 1e-4 * scale + 5 * theirs
        assert error <= limit, f"{name}, error {error} of {scale}, PyTorch's {theirs}, {what}"


def _gradients(
    like: Network, dtype: torch.dtype, x: Tensor, target: Tensor
) -> tuple[dict[str, np.ndarray], float]:
    """Return the gradients and the loss of a copy of `like` in PyTorch."""
    network = copy.deepcopy(like).to(dtype)
    loss = network(x.to(dtype), target.to(dtype))
    loss.backward()
    named = network.named_parameters()
    return {n: p.grad.numpy() for n, p in named if p.grad is not None}, float(loss.detach())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [Images, Sequences])
def test_random_network(kind: type[Network], seed: int) -> None:
    _check(kind, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 115))
@pytest.mark.parametrize("kind", [Images, Sequences])
def test_many_random_networks(kind: type[Network], seed: int) -> None:
    _check(kind, seed)
