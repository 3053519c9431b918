"""Modules to train: small ones of every kind that people train, with their loss inside.

Each maker returns a module, whose forward takes a batch and returns the loss (or a tuple or dict
with it), and a function that draws the batch of a step from a seed. Losses are such that every
gradient counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Trainee:
    """A module, how to draw a batch, and the index of the loss among its outputs."""

    module: nn.Module
    batch: Callable[[int], Batch]


def rng(seed: int) -> torch.Generator:
    """The source of a batch's random numbers."""
    return torch.Generator().manual_seed(seed)


class Classified(nn.Module):
    """A network followed by the cross entropy of its output."""

    def __init__(self, network: nn.Module, smoothing: float = 0.0) -> None:
        super().__init__()
        self.network = network
        self.smoothing = smoothing

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of the classes of `x` against `labels`."""
        return F.cross_entropy(self.network(x), labels, label_smoothing=self.smoothing)


def images(shape: tuple[int, ...], classes: int) -> Callable[[int], Batch]:
    """How to draw values of this shape and a class for each of the first axis."""

    def draw(seed: int) -> Batch:
        generator = rng(seed)
        x = torch.randn(shape, generator=generator)
        return x, torch.randint(0, classes, shape[:1], generator=generator)

    return draw


def linear_regression() -> Trainee:
    """Ten parameters: the smallest thing that trains."""

    class Regression(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(9, 1)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.mse_loss(self.linear(x), y)

    def draw(seed: int) -> Batch:
        x = torch.randn((32, 9), generator=rng(seed))
        return x, x.sum(1, keepdim=True)

    return Trainee(Regression(), draw)


def mlp(width: int = 64, inputs: int = 32, batch: int = 32, classes: int = 10) -> Trainee:
    """A multilayer perceptron with LayerNorm."""
    network = nn.Sequential(
        nn.Linear(inputs, width),
        nn.LayerNorm(width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, classes),
    )
    return Trainee(Classified(network), images((batch, inputs), classes))


def perceptron(sizes: tuple[int, ...], batch: int) -> Trainee:
    """Linear layers of the given sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inner, outer in pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    network = nn.Sequential(*layers[:-1])
    return Trainee(Classified(network), images((batch, sizes[0]), sizes[-1]))


def plain_cnn(batch: int = 64) -> Trainee:
    """Two convolutions with pooling over images of 28 by 28."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    return Trainee(Classified(network), images((batch, 1, 28, 28), 10))


def cnn(batch: int = 16, side: int = 16, channels: int = 8) -> Trainee:
    """Convolutions with BatchNorm and both kinds of pooling."""
    network = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * channels),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * (side // 4) ** 2, 10),
    )
    return Trainee(Classified(network), images((batch, 3, side, side), 10))


class _Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, s, e = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, e // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, e))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """A decoder transformer whose head is tied to the token embedding."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.1)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of the next tokens."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def decoder(
    batch: int = 4,
    length: int = 16,
    width: int = 32,
    layers: int = 2,
    heads: int = 4,
    vocabulary: int = 101,
) -> Trainee:
    """A decoder transformer with embeddings and a tied head."""

    def draw(seed: int) -> Batch:
        ids = torch.randint(0, vocabulary, (batch, length + 1), generator=rng(seed))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    return Trainee(Decoder(vocabulary, width, layers, heads, length), draw)


def lstm(batch: int = 8, length: int = 7, width: int = 16) -> Trainee:
    """A bidirectional LSTM over sequences, classified by its last outputs."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(12, width, bidirectional=True, batch_first=True)
            self.head = nn.Linear(2 * width, 5)

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            y, _ = self.lstm(x)
            return F.cross_entropy(self.head(y).flatten(0, 1), labels.flatten())

    def draw(seed: int) -> Batch:
        generator = rng(seed)
        x = torch.randn((batch, length, 12), generator=generator)
        return x, torch.randint(0, 5, (batch, length), generator=generator)

    return Trainee(Tagger(), draw)


def unet(batch: int = 2, side: int = 16, channels: int = 8) -> Trainee:
    """A UNet: down by pooling, up by transposed convolutions, joined by concatenation."""

    def double(inner: int, outer: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(2, outer), nn.SiLU(),
            nn.Conv2d(outer, outer, 3, padding=1), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2 = double(3, channels), double(channels, 2 * channels)
            self.bottom = double(2 * channels, 4 * channels)
            self.up2 = nn.ConvTranspose2d(4 * channels, 2 * channels, 2, stride=2)
            self.join2 = double(4 * channels, 2 * channels)
            self.up1 = nn.ConvTranspose2d(2 * channels, channels, 2, stride=2)
            self.join1 = double(2 * channels, channels)
            self.head = nn.Conv2d(channels, 4, 1)

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            a = self.down1(x)
            b = self.down2(F.max_pool2d(a, 2))
            c = self.bottom(F.max_pool2d(b, 2))
            b = self.join2(torch.cat([self.up2(c), b], 1))
            a = self.join1(torch.cat([self.up1(b), a], 1))
            return F.cross_entropy(self.head(a), labels)

    def draw(seed: int) -> Batch:
        generator = rng(seed)
        x = torch.randn((batch, 3, side, side), generator=generator)
        return x, torch.randint(0, 4, (batch, side, side), generator=generator)

    return Trainee(UNet(), draw)


def depthwise(batch: int = 16, side: int = 16, channels: int = 32) -> Trainee:
    """Depthwise-separable convolutions, which few formulations run well."""

    def separable(inner: int, outer: int, stride: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner), nn.ReLU6(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU6(),
        )  # fmt: skip

    network = nn.Sequential(
        nn.Conv2d(3, channels, 3, 1, 1, bias=False),
        separable(channels, 2 * channels, 2),
        separable(2 * channels, 2 * channels, 1),
        separable(2 * channels, 4 * channels, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * channels, 10),
    )
    return Trainee(Classified(network), images((batch, 3, side, side), 10))
