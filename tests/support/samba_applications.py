"""Models of ten kinds of applications, each with batches, written for torch as users do."""

from __future__ import annotations

import torch
from torch import distributions, nn
from torch.nn import functional

Batch = dict[str, torch.Tensor]
WORDS, CLASSES = 11, 5


def generator(step: int) -> torch.Generator:
    return torch.Generator().manual_seed(100 + step)


class Translator(nn.Module):
    """Sequence to sequence; padding is no target."""

    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(WORDS, 16, padding_idx=0)
        self.target = nn.Embedding(WORDS, 16, padding_idx=0)
        self.encoder = nn.GRU(16, 16, batch_first=True)
        self.decoder = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, WORDS)
        self.criterion = nn.CrossEntropyLoss(ignore_index=0)

    def forward(self, source, shifted, target):
        _, state = self.encoder(self.source(source))
        hidden, _ = self.decoder(self.target(shifted), state)
        logits = self.out(hidden)
        return self.criterion(logits.reshape(-1, WORDS), target.reshape(-1)), logits

    @staticmethod
    def batch(step: int) -> Batch:
        target = torch.randint(1, WORDS, (4, 7), generator=generator(step))
        target[:, 5:] = 0
        source = torch.randint(1, WORDS, (4, 6), generator=generator(step + 50))
        return {"source": source, "shifted": target.roll(1, 1), "target": target}


class Generation(nn.Module):
    """A generator and a discriminator, each with a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 5))
        self.judge = nn.Sequential(nn.Linear(5, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def forward(self, noise, real):
        made = self.maker(noise)
        ones = torch.ones(len(noise), 1, dtype=noise.dtype)
        zeros = torch.zeros_like(ones)
        said = functional.binary_cross_entropy_with_logits
        judged = said(self.judge(real), ones) + said(self.judge(made.detach()), zeros)
        fixed = {name: value.detach() for name, value in self.judge.named_parameters()}
        return judged, said(torch.func.functional_call(self.judge, fixed, made), ones), made

    @staticmethod
    def batch(step: int) -> Batch:
        draw = generator(step)
        return {
            "noise": torch.randn(6, 3, generator=draw),
            "real": torch.randn(6, 5, generator=draw),
        }


class Variational(nn.Module):
    """A variational autoencoder, with distributions of torch; the noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 6), nn.Linear(3, 12)

    def forward(self, x, noise):
        mean, spread = self.encoder(x).chunk(2, dim=-1)
        found = distributions.Normal(mean, functional.softplus(spread))
        prior = distributions.Normal(torch.zeros(3), torch.ones(3))
        again = distributions.Bernoulli(logits=self.decoder(mean + found.stddev * noise))
        far = distributions.kl_divergence(found, prior).sum(-1).mean()
        return far - again.log_prob(x).sum(-1).mean(), found.mean

    @staticmethod
    def batch(step: int) -> Batch:
        draw = generator(step)
        return {
            "x": torch.rand(6, 12, generator=draw).round(),
            "noise": torch.randn(6, 3, generator=draw),
        }


class Siamese(nn.Module):
    """One network for both inputs, and a contrastive loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, left, right, same):
        far = functional.pairwise_distance(self.net(left), self.net(right))
        return (same * far**2 + (1 - same) * torch.clamp(1 - far, min=0) ** 2).mean(), far

    @staticmethod
    def batch(step: int) -> Batch:
        draw = generator(step)
        return {
            "left": torch.randn(6, 8, generator=draw),
            "right": torch.randn(6, 8, generator=draw),
            "same": torch.randint(0, 2, (6,), generator=draw).float(),
        }


class Pictures(nn.Module):
    """Convolutions with batch norm, and smoothed labels; smooth, as each batch has 10^4 pixels.

    With a kink at each, some pixel comes so near to it in a few steps that rounding chooses its
    side, and runs of one network in float32 part there, as far as an error in a formula would take
    them apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.AvgPool2d(2)),
            *(nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.SiLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )
        self.head, self.criterion = nn.Linear(8, CLASSES), nn.CrossEntropyLoss(label_smoothing=0.1)

    def forward(self, x, y):
        logits = self.head(self.features(x))
        return self.criterion(logits, y), logits

    @staticmethod
    def batch(step: int) -> Batch:
        draw = generator(step)
        return {
            "x": torch.randn(8, 3, 12, 12, generator=draw),
            "y": torch.randint(CLASSES, (8,), generator=draw),
        }


class Characters(nn.Module):
    """An LSTM that is given its state and returns the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(20, 12), nn.Linear(16, 20)
        self.layers = nn.LSTM(12, 16, num_layers=2, batch_first=True)

    def forward(self, x, y, hidden, cell):
        found, (hidden, cell) = self.layers(self.table(x), (hidden, cell))
        loss = functional.cross_entropy(self.out(found).transpose(1, 2), y)
        return loss, hidden.detach(), cell.detach()

    @staticmethod
    def batch(step: int) -> Batch:
        text = torch.randint(20, (3, 10), generator=generator(step))
        state = torch.zeros(2, 3, 16)
        return {"x": text[:, :-1], "y": text[:, 1:], "hidden": state, "cell": state + 0.1}


class Language(nn.Module):
    """A transformer whose table is its head too, and that keeps its mask from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(17, 16), nn.Embedding(9, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 17, bias=False)
        self.head.weight = self.table.weight
        self.mask: torch.Tensor | None = None

    def forward(self, x, y):
        if self.mask is None or len(self.mask) != x.shape[1]:
            self.mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        entered = self.table(x) * 4 + self.places(torch.arange(x.shape[1]))
        logits = self.head(self.layers(entered, mask=self.mask))
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten()), logits

    @staticmethod
    def batch(step: int) -> Batch:
        text = torch.randint(17, (3, 10), generator=generator(step))
        return {"x": text[:, :-1], "y": text[:, 1:]}


class Estimates(nn.Module):
    """Several results and losses, of which the outputs 1 and 3 are minimised."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
        self.first, self.second = nn.Linear(16, 1), nn.Linear(16, 2)

    def forward(self, x, one, two):
        hidden = self.trunk(x)
        first, second = self.first(hidden), self.second(hidden)
        rough = functional.smooth_l1_loss(second, two)
        return first, functional.mse_loss(first, one), second, rough, (second - two).abs().mean()

    @staticmethod
    def batch(step: int) -> Batch:
        draw = generator(step)
        sizes = {"x": 6, "one": 1, "two": 2}
        return {name: torch.randn(5, size, generator=draw) for name, size in sizes.items()}


class Tuned(nn.Module):
    """A new head on a frozen backbone, whose statistics are frozen too."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.head = nn.Linear(12, CLASSES)
        self.backbone.requires_grad_(False).eval()

    def forward(self, x, y):
        logits = self.head(self.backbone(x))
        return functional.cross_entropy(logits, y), logits

    @staticmethod
    def batch(step: int) -> Batch:
        draw = generator(step)
        return {
            "x": torch.randn(5, 6, generator=draw),
            "y": torch.randint(CLASSES, (5,), generator=draw),
        }


class Autoencoder(nn.Module):
    """Returns what its loss, on the host, is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(10, 4), nn.Linear(4, 10)

    def forward(self, x):
        code = torch.tanh(self.encoder(x))
        return self.decoder(code), code

    @staticmethod
    def batch(step: int) -> Batch:
        return {"x": torch.randn(5, 10, generator=generator(step))}
